"""`python -m tableside_spark.state`: list, show, move, delete, jar and settings.

Exit codes: 0 for success, 1 for a failure, 2 for wrong usage.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tableside_client import Client
from tableside_client.credential import CredentialError
from tableside_client.errors import TableError
from tableside_client.tls import TlsFileError
from tableside_spark.state.delete import Progress
from tableside_spark.state.description import Contents, Query, Version
from tableside_spark.state.inspect import QueryNotFound, State
from tableside_spark.state.key_layout import Place
from tableside_spark.state.session_config import BOUNDS, JarNotFound, Options, jar_path, settings

URL_VARIABLE = "TABLESIDE_URL"
TOKEN_FILE_VARIABLE = "TABLESIDE_TOKEN_FILE"  # noqa: S105 - the name of a variable, not a secret
URL = "http://127.0.0.1:8080"
FAILED = 1
FILES = ("token_file", "ca_file", "certificate_file", "key_file")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    verb: Callable[[argparse.Namespace], int] = args.verb
    try:
        return verb(args)
    except (TableError, QueryNotFound, JarNotFound, CredentialError, TlsFileError) as error:
        print(f"tableside_spark.state: {error}", file=sys.stderr)
        return FAILED
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tableside_spark.state", description="State of Spark's queries.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--url", default=os.environ.get(URL_VARIABLE, URL), help=f"the service [{URL_VARIABLE}]")
    place.add_argument("--table", required=True, help="the table with the state")
    for name in FILES:
        place.add_argument(_option(name), metavar="FILE")

    def verb(
        name: str, command: Callable[[argparse.Namespace], int], text: str, *, at: bool
    ) -> argparse.ArgumentParser:
        subparser = verbs.add_parser(name, help=text, description=text, parents=[place] if at else [])
        subparser.set_defaults(verb=command)
        return subparser

    verb("list", _list, "List the queries whose state is in a table.", at=True)
    show = verb("show", _show, "Show a query's state.", at=True)
    show.add_argument("query", metavar="QUERY")
    show.add_argument("--versions", action="store_true", help="list each version instead of the number of versions")
    move = verb(
        "move", _move, "Assign a query's state to another copy of its checkpoint. The query must not run.", at=True
    )
    move.add_argument("query", metavar="QUERY")
    move.add_argument("checkpoint", metavar="CHECKPOINT")
    delete = verb("delete", _delete, "Remove all of a query's state. The query must not run.", at=True)
    delete.add_argument("query", metavar="QUERY")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    scan = "also scan for records of writers considered dead; default: if the scan reads only the query's records"
    delete.add_argument("--scan", action=argparse.BooleanOptionalAction, default=None, help=scan)
    verb("jar", _jar, "Print the path of the state store's jar.", at=False)
    settings_parser = verb(
        "settings", _settings, "Print a session's settings in the format of spark-defaults.conf.", at=True
    )
    settings_parser.add_argument("--memory", choices=["all", "bounded"])
    for name in BOUNDS:
        settings_parser.add_argument(_option(name), type=int if name.endswith("_max") else float, metavar="N")
    return parser


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _list(args: argparse.Namespace) -> int:
    with _state(args) as state:
        for query in state.queries():
            partitions = sum(store.partitions for store in query.stores)
            _print(
                query.id, query.created, f"{len(query.operators)} operators", f"{partitions} places", query.checkpoint
            )
    return 0


def _show(args: argparse.Namespace) -> int:
    with _state(args) as state:
        query = state.query(args.query)
        _print("query", query.id)
        _print("checkpoint", query.checkpoint)
        _print("created", query.created)
        show = _show_versions if args.versions else _show_places
        show(query, [state.contents(place) for place in query.places()])
    return 0


def _show_places(query: Query, all_contents: Sequence[Contents]) -> None:
    _print("operator", "partition", "store", "latest", "records", "versions", "deltas B", "snapshots B", "unfinished")
    for contents in all_contents:
        latest = contents.latest
        version, records = ("-", "-") if latest is None else (latest.number, latest.records)
        finished = sum(version.finished for version in contents.versions)
        sizes = contents.delta_bytes, contents.snapshot_bytes
        _print(*_columns(contents.place), version, records, finished, *sizes, contents.unfinished)
    deltas = sum(contents.delta_bytes for contents in all_contents)
    snapshots = sum(contents.snapshot_bytes for contents in all_contents)
    print(f"{query.id}: {deltas + snapshots} bytes in {len(all_contents)} places")


def _show_versions(query: Query, all_contents: Sequence[Contents]) -> None:
    _print("operator", "partition", "store", "version", "records", "bytes", "chunks", "base", "time", "uid")
    for contents in all_contents:
        for version in contents.versions:
            _print(*_columns(contents.place), version.number, *_version(version), version.uid)
        for snapshot in contents.snapshots:
            sizes = (snapshot.records, snapshot.bytes, snapshot.chunks, "-", snapshot.time)
            columns = sizes if snapshot.finished else ("unfinished",)
            _print(*_columns(contents.place), f"snapshot of {snapshot.number}", *columns, snapshot.name)


def _version(version: Version) -> tuple[object, ...]:
    if not version.finished:
        return ("unfinished",)
    return version.records, version.bytes, version.chunks, version.base, version.time


def _move(args: argparse.Namespace) -> int:
    with _state(args) as state:
        previous = state.query(args.query).checkpoint
        state.move(args.query, args.checkpoint)
    print(f"{args.query}: moved from {previous} to {args.checkpoint}")
    return 0


def _delete(args: argparse.Namespace) -> int:
    with _state(args) as state:
        query = state.query(args.query)
        if not (args.yes or _confirmed(query)):
            print("nothing was removed", file=sys.stderr)
            return FAILED
        removed = state.delete(query.id, _print_progress, scan=args.scan)
    print(f"{query.id}: {removed} records removed")
    return 0


def _confirmed(query: Query) -> bool:
    if not sys.stdin.isatty():
        raise ValueError("delete asks for confirmation, and there is no terminal: use --yes")
    question = f"Remove the state of query {query.id}, whose checkpoint is {query.checkpoint}? [y/N] "
    return input(question).strip().lower() in ("y", "yes")


def _print_progress(progress: Progress) -> None:
    print(f"{progress.place or 'the query'}: {progress.removed} records removed", file=sys.stderr)


def _jar(args: argparse.Namespace) -> int:
    print(jar_path())
    return 0


def _settings(args: argparse.Namespace) -> int:
    options: Options = {name: getattr(args, name) for name in Options.__annotations__}  # type: ignore[assignment]
    for name, value in settings(args.url, args.table, **options).items():
        print(f"{name} {value}")
    return 0


@contextmanager
def _state(args: argparse.Namespace) -> Iterator[State]:
    files = {name: getattr(args, name) for name in FILES}
    files["token_file"] = files["token_file"] or os.environ.get(TOKEN_FILE_VARIABLE) or None
    with Client(args.url, **files) as client, State(client, args.table) as state:
        yield state


def _columns(place: Place) -> tuple[int, int, str]:
    return place.operator, place.partition, place.store


def _print(*words: object) -> None:
    print("\t".join("-" if word is None else str(word) for word in words))


if __name__ == "__main__":
    sys.exit(main())
