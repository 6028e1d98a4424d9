"""The command `tableside`, also `python -m tableside`."""

import sys


def main() -> None:
    """Run the command line, or say in one line what is missing to run it."""
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tableside"):
            raise
        sys.exit(f"tableside: the command needs pip install 'tableside[service]' ({error.name} is missing)")
    app()


if __name__ == "__main__":
    main()
