"""The command line `tableside`: serves, checks a configuration, reads and writes records, and creates tokens.

The commands that talk to a service use the client. Imports any package. Most imports are deferred until a command needs
them.
"""

from .main import app

__all__ = ["app"]
