"""Run the benchmarks: `scripts/bench`, or some of them by name: `scripts/bench batch single`.

The benchmark `stores` measures all stores, or only the named ones: `scripts/bench stores redis`.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from scripts.bootstrap import SetupError
from servers.process import ServerFailed

from . import (
    batch_get,
    coalesce,
    compare,
    counters,
    figure,
    folding,
    hostile,
    in_flight,
    overload,
    policies,
    python_client,
    refusals,
    single,
    slow,
    spark,
    spark_redis,
    spark_scan,
    state,
    stores,
)
from .kinds import KINDS
from .report import Result, show, write

NAMES = (
    "batch",
    "single",
    "policies",
    "coalesce",
    "compare",
    "overload",
    "spark",
    "spark-redis",
    "scan",
    "in-flight",
    "python",
    "counters",
    "folding",
    "refusals",
    "slow",
    "state",
    "hostile",
    "stores",
)
OVERLOAD_TIMES = 12
"""The duration of overload as a multiple of `--seconds`: one minute by default."""

STORES_SHARE = 0.2
"""The share of `--seconds` for each measurement of `stores`, which has many variants."""


def main() -> None:
    """Run the selected benchmarks, print the tables and write the JSON file."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = "|".join((*NAMES, *KINDS))
    parser.add_argument("names", nargs="*", type=_name, metavar=names, help="benchmarks and stores (default: all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="the duration of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="the number of measurements of each variant")
    parser.add_argument("--rows", type=int, default=1_000_000, help="the maximum number of rows that Spark sends")
    _add_state(parser.add_argument_group("state"))
    given = parser.add_argument_group("hostile")
    given.add_argument("--tables", nargs="+", choices=hostile.TABLES, default=["memory", "rocksdb"], help="the stores")
    given.add_argument("--matching", default="", help="only the inputs whose names contain this text")
    given.add_argument("--connections", type=int, default=4, help="the number of connections with hostile requests")
    parser.add_argument("--figure", type=Path, help="an SVG file for the ratios of compare")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="the file for the results")
    arguments = parser.parse_args()
    results: list[Result] = []
    for name in _chosen(arguments.names):
        print(f"{name} …", flush=True)
        results += _run(name, arguments)
    show(results)
    write(results, arguments.json)


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
    if text not in NAMES and text not in KINDS:
        raise argparse.ArgumentTypeError(f"is one of {', '.join((*NAMES, *KINDS))}")
    return text


def _chosen(names: list[str]) -> list[str]:
    """Return the benchmarks to run. `stores` measures the named kinds of store, or all of them."""
    kinds = [name for name in names if name in KINDS]
    others = [name for name in names or NAMES if name in NAMES]
    if "stores" in others and not kinds:
        kinds = list(KINDS)
    return [name for name in others if name != "stores"] + kinds


def _run(name: str, arguments: argparse.Namespace) -> list[Result]:
    match name:
        case "batch":
            return batch_get.run(arguments.seconds, arguments.rounds)
        case "single":
            return single.run(arguments.seconds, arguments.rounds)
        case "policies":
            return policies.run(arguments.seconds, arguments.rounds)
        case "coalesce":
            return coalesce.run(arguments.seconds, arguments.rounds)
        case "compare":
            return _compared(arguments)
        case "overload":
            return overload.run(max(1.0, arguments.seconds * OVERLOAD_TIMES))
        case "spark":
            return spark.run(arguments.rows)
        case "spark-redis":
            return spark_redis.run(arguments.rows, arguments.rounds)
        case "scan":
            return spark_scan.run(arguments.rows, arguments.rounds)
        case "in-flight":
            return in_flight.run(arguments.rows, arguments.rounds)
        case "python":
            return python_client.run(arguments.seconds, arguments.rounds)
        case "counters":
            return counters.run(arguments.seconds, arguments.rounds)
        case "folding":
            return folding.run(arguments.rows, arguments.rounds)
        case "refusals":
            return refusals.run(arguments.seconds, arguments.rounds)
        case "slow":
            return slow.run(arguments.seconds, arguments.rounds)
        case "hostile":
            chosen = arguments.tables, arguments.matching, arguments.connections
            return hostile.run(*chosen, arguments.seconds, arguments.rounds)
        case "state":
            return state.run(_plan(arguments), arguments.rounds)
    return stores.run(name, arguments.seconds * STORES_SHARE, arguments.rounds)


def _compared(arguments: argparse.Namespace) -> list[Result]:
    results = compare.run(arguments.seconds, arguments.rounds)
    if arguments.figure is not None:
        figure.write(results, compare.FIGURE_TITLE, (compare.SERVICE, compare.SHARED_SERVICE), arguments.figure)
    return results


def _plan(arguments: argparse.Namespace) -> state.Plan:
    return state.Plan(**{each.name: getattr(arguments, each.name) for each in fields(state.Plan)})


try:
    main()
except (SetupError, ServerFailed, state.DriverFailed) as problem:
    sys.exit(f"bench: {problem}")
