"""Run the benchmarks: `scripts/bench`, or some of them by name: `scripts/bench batch single`.

The benchmark `stores` measures all stores, or only the named ones: `scripts/bench stores redis`. With `--against`, the
benchmarks measure this checkout and another one in turn, and the ratios are to the other one.
"""

import argparse
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

from scripts.bootstrap import SetupError
from servers.process import ServerFailed

from . import against, state, turns
from .report import Result, show, write
from .services import KINDS

TABLES = ("memory", "rocksdb", "redis", "postgres", "dynamodb")

BENCHMARKS = {
    "batch": ("batches", "seconds", "rounds", "matching"),
    "orders": ("orders", "seconds", "rounds"),
    "replace": ("replace", "rounds"),
    "single": ("single", "seconds", "rounds"),
    "policies": ("policies", "seconds", "rounds"),
    "compare": ("compare", "seconds", "rounds", "figure"),
    "overload": ("overload", "seconds"),
    "spark": ("spark", "rows", "rounds"),
    "scan": ("spark_scan", "rows", "rounds"),
    "python": ("python_client", "seconds", "rounds"),
    "frames": ("frames", "rounds"),
    "feast": ("feast", "seconds", "rounds"),
    "refusals": ("refusals", "seconds", "rounds"),
    "state": ("state", "plan", "rounds"),
    "hostile": ("hostile", "tables", "matching", "connections", "seconds", "rounds"),
    "stores": ("stores", "kinds", "seconds", "rounds"),
}
"""Each benchmark's module, which is imported only for its measurement, and the options that its function `run` has."""


def main() -> None:
    """Run the selected benchmarks, print the tables and write the JSON file."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="measure this directory's version in turn")
    _, others = parser.parse_known_args()
    arguments = _parser(parser).parse_args()
    arguments.kinds = [name for name in arguments.names if name in KINDS]
    arguments.plan = state.Plan(**{each.name: getattr(arguments, each.name) for each in fields(state.Plan)})
    results = against.run(arguments.against, others) if arguments.against else _results(arguments)
    show(results)
    write(results, arguments.json)


def _parser(parent: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, parents=[parent])
    metavar, chosen = "|".join((*BENCHMARKS, *KINDS)), "benchmarks and stores (default: all)"
    parser.add_argument("names", nargs="*", metavar=metavar, type=_name, help=chosen)
    parser.add_argument("--seconds", type=float, default=5.0, help="the duration of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="the number of measurements of each variant")
    parser.add_argument("--rows", type=int, default=1_000_000, help="the maximum number of rows that Spark sends")
    parser.add_argument("--matching", default="", help="only batches and hostile inputs with this text in their names")
    _add_state(parser.add_argument_group("state"))
    given = parser.add_argument_group("hostile")
    given.add_argument("--tables", nargs="+", choices=TABLES, default=["memory", "rocksdb"], help="the stores")
    given.add_argument("--connections", type=int, default=4, help="the number of connections with hostile requests")
    parser.add_argument("--figure", type=Path, help="an SVG file for the ratios of compare")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="the file for the results")
    return parser


def _add_state(group: argparse._ArgumentGroup) -> None:
    default = state.Plan()
    group.add_argument("--keys", type=int, default=default.keys, help="the number of keys in the state")
    group.add_argument("--batches", type=int, default=default.batches, help="the number of measured micro-batches")
    group.add_argument("--payload-bytes", type=int, default=0, help="size of a text stored with each key")
    group.add_argument("--heaps-mib", type=int, nargs="+", default=default.heaps_mib, help="heap sizes of the driver")
    group.add_argument("--maintenance-s", type=float, nargs="+", default=default.maintenance_s, help="its intervals")
    group.add_argument("--run-max-s", type=float, default=default.run_max_s, help="the time limit of a driver process")
    group.add_argument("--ways", nargs="+", choices=default.ways, default=default.ways, help="places of the state")


def _name(text: str) -> str:
    if text not in BENCHMARKS and text not in KINDS:
        raise argparse.ArgumentTypeError(f"is one of {', '.join((*BENCHMARKS, *KINDS))}")
    return text


def _results(arguments: argparse.Namespace) -> list[Result]:
    results: list[Result] = []
    turns.wait()
    for name in dict.fromkeys("stores" if name in KINDS else name for name in arguments.names or BENCHMARKS):
        print(f"{name} …", flush=True)
        module, *options = BENCHMARKS[name]
        run = import_module(f".{module}", __package__).run
        results += run(**{option: getattr(arguments, option) for option in options})
    return results


try:
    main()
except (SetupError, ServerFailed, state.DriverFailed) as problem:
    sys.exit(f"bench: {problem}")
