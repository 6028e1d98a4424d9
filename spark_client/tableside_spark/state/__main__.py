"""`python -m tableside_spark.state`."""

import sys

from tableside_spark.state.cli import main

if __name__ == "__main__":
    sys.exit(main())
