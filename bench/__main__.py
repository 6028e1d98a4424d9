"""Run the benchmarks: `scripts/bench`, or some of them by name: `scripts/bench batch single`.

Of the stores all are measured, or those that are named: `scripts/bench stores redis`.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from scripts.bootstrap import SetupError
from servers.process import ServerFailed

from . import batch_get, coalesce, folding, overload, policies, refusals, single, slow, spark, state, stores
from .kinds import KINDS
from .report import Result, show, write

NAMES = (
    "batch",
    "single",
    "policies",
    "coalesce",
    "overload",
    "spark",
    "folding",
    "refusals",
    "slow",
    "state",
    "stores",
)
OVERLOAD_TIMES = 12
"""How much longer than `--seconds` more is offered than can be done: by default for a minute."""

STORES_SHARE = 0.2
"""The part of `--seconds` that stores are measured for: there are so many ways."""


def main() -> None:
    """Run what was asked for, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = "|".join((*NAMES, *KINDS))
    parser.add_argument("names", nargs="*", type=_name, metavar=names, help="which; all by default, of stores as well")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each way is measured in a round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way is measured, in turn")
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows Spark sends, at most")
    _add_state(parser.add_argument_group("state"))
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="where the results go")
    arguments = parser.parse_args()
    results: list[Result] = []
    for name in _chosen(arguments.names):
        print(f"{name} …", flush=True)
        results += _run(name, arguments)
    show(results)
    write(results, arguments.json)


def _add_state(group: argparse._ArgumentGroup) -> None:
    default = state.Plan()
    group.add_argument("--keys", type=int, default=default.keys, help="how many keys the state has")
    group.add_argument("--batches", type=int, default=default.batches, help="how many micro-batches are measured")
    group.add_argument("--payload-bytes", type=int, default=0, help="how long a text is kept of each key, beside sums")
    group.add_argument("--heaps-mib", type=int, nargs="+", default=default.heaps_mib, help="heaps of a driver")
    group.add_argument("--maintenance-s", type=float, nargs="+", default=default.maintenance_s, help="its intervals")
    group.add_argument("--run-max-s", type=float, default=default.run_max_s, help="how long a driver may take")
    group.add_argument("--ways", nargs="+", choices=default.ways, default=default.ways, help="where the state is")


def _name(text: str) -> str:
    if text not in NAMES and text not in KINDS:
        raise argparse.ArgumentTypeError(f"is one of {', '.join((*NAMES, *KINDS))}")
    return text


def _chosen(names: list[str]) -> list[str]:
    """Return what to run: for `stores` the kinds that are named too, or all of them."""
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
        case "overload":
            return overload.run(max(1.0, arguments.seconds * OVERLOAD_TIMES))
        case "spark":
            return spark.run(arguments.rows)
        case "folding":
            return folding.run(arguments.rows, arguments.rounds)
        case "refusals":
            return refusals.run(arguments.seconds, arguments.rounds)
        case "slow":
            return slow.run(arguments.seconds, arguments.rounds)
        case "state":
            return state.run(_plan(arguments), arguments.rounds)
    return stores.run(name, arguments.seconds * STORES_SHARE, arguments.rounds)


def _plan(arguments: argparse.Namespace) -> state.Plan:
    return state.Plan(**{each.name: getattr(arguments, each.name) for each in fields(state.Plan)})


try:
    main()
except (SetupError, ServerFailed, state.DriverFailed) as problem:
    sys.exit(f"bench: {problem}")
