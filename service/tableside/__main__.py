"""The command `tableside`, also `python -m tableside`."""

import sys


def main() -> None:
    """Run the command line, or exit with a one-line message if its dependencies are missing."""
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tableside"):
            raise
        sys.exit(f"tableside: the command needs pip install 'tableside[service]' ({error.name} is missing)")
    app()


if __name__ == "__main__":
    main()
