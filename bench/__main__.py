"""Run the benchmarks: `scripts/bench`, or some of them by name: `scripts/bench batch single spark`."""

import argparse
from pathlib import Path

from . import batch_get, single, spark
from .report import Result, show, write

NAMES = ("batch", "single", "spark")


def main() -> None:
    """Run what was asked for, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", type=_name, metavar="|".join(NAMES), help="which; all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each way is measured in a round")
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows Spark sends")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="where the results go")
    arguments = parser.parse_args()
    results: list[Result] = []
    for name in arguments.names or NAMES:
        print(f"{name} …", flush=True)
        results += _run(name, arguments)
    show(results)
    write(results, arguments.json)


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"is one of {', '.join(NAMES)}")
    return text


def _run(name: str, arguments: argparse.Namespace) -> list[Result]:
    match name:
        case "batch":
            return batch_get.run(arguments.seconds)
        case "single":
            return single.run(arguments.seconds)
    return spark.run(arguments.rows)


main()
