"""The command line `tableside`: serves, checks a configuration, reads and writes records, and makes tokens.

The commands that talk to a service use the client. Imports any package, most of them only when a command needs them.
"""

from .main import app

__all__ = ["app"]
