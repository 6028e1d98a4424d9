"""The command `tableside`, also `python -m tableside`."""

import sys
from importlib.util import find_spec

from .cli import app


def main() -> None:
    """Run the command line, or exit with a one-line message if the dependencies of a command are missing."""
    try:
        app()
    except ModuleNotFoundError as error:
        if find_spec("fastapi") is not None:
            raise
        sys.exit(f"tableside: the command needs pip install 'tableside[service]' ({error.name} is missing)")


if __name__ == "__main__":
    main()
