"""`python -m scripts.reference` writes the generated files. `--check` only lists outdated ones."""

import sys

from .references import stale, write


def main(arguments: list[str]) -> int:
    """Return 0 if all files are up to date, or are now."""
    if arguments == ["--check"]:
        names = stale()
        for name in names:
            print(f"{name} is out of date: renew it by `scripts/run python -m scripts.reference`", file=sys.stderr)
        return int(bool(names))
    if arguments:
        print("usage: python -m scripts.reference [--check]", file=sys.stderr)
        return 2
    for name in write():
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
