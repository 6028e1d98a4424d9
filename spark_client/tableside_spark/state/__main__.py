"""`python -m tableside_spark.state`, with exit codes 0 for success, 1 for a failure, 2 for wrong usage."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tableside_client import Client
from tableside_client.address import URL_VARIABLE
from tableside_client.credential import CredentialError
from tableside_client.errors import TableError
from tableside_client.tls import TlsFileError
from tableside_spark.state.inspect import QueryNotFound, State
from tableside_spark.state.records import Contents, Place, Progress, Query
from tableside_spark.state.session_config import BOUNDS, JarNotFound, Options, jar_path, settings

FILES = ("token_file", "ca_file", "certificate_file", "key_file")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    verb: Callable[[argparse.Namespace], int | None] = args.verb
    try:
        return verb(args) or 0
    except (TableError, QueryNotFound, JarNotFound, CredentialError, TlsFileError) as error:
        print(f"tableside_spark.state: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tableside_spark.state", description="State of Spark's queries.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    place = argparse.ArgumentParser(add_help=False)
    url = os.environ.get(URL_VARIABLE, "http://127.0.0.1:8080")
    place.add_argument("--url", default=url, help=f"the service [{URL_VARIABLE}]")
    place.add_argument("--table", required=True, help="the table with the state")
    for name in FILES:
        place.add_argument(_option(name), metavar="FILE")
    parsers = {}
    for name, command, text in (
        ("list", _list, "List the queries whose state is in a table."),
        ("show", _show, "Show a query's state."),
        ("move", _move, "Assign a query's state to another copy of its checkpoint. The query must not run."),
        ("delete", _delete, "Remove all of a query's state. The query must not run."),
        ("jar", lambda _: print(jar_path()), "Print the path of the state store's jar."),
        ("settings", _settings, "Print a session's settings in the format of spark-defaults.conf."),
    ):
        parents = [] if name == "jar" else [place]
        parsers[name] = verbs.add_parser(name, help=text, description=text, parents=parents)
        parsers[name].set_defaults(verb=command)
    for name in ("show", "move", "delete"):
        parsers[name].add_argument("query", metavar="QUERY")
    parsers["show"].add_argument("--versions", action="store_true", help="list each version, not only their number")
    parsers["move"].add_argument("checkpoint", metavar="CHECKPOINT")
    parsers["delete"].add_argument("--yes", action="store_true", help="do not ask")
    parsers["settings"].add_argument("--memory", choices=["all", "bounded"])
    for name in BOUNDS:
        parsers["settings"].add_argument(_option(name), type=int if name.endswith("_max") else float, metavar="N")
    return parser


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _list(args: argparse.Namespace) -> None:
    with _state(args) as state:
        for query in state.queries():
            operators, places = len(query.operators), sum(store.partitions for store in query.stores)
            _print(query.id, query.created, f"{operators} operators", f"{places} places", query.checkpoint)


def _show(args: argparse.Namespace) -> None:
    with _state(args) as state:
        query = state.query(args.query)
        _print("query", query.id)
        _print("checkpoint", query.checkpoint)
        _print("created", query.created)
        show = _show_versions if args.versions else _show_places
        show(query, [state.contents(place) for place in query.places()])


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
            sizes = (version.records, version.bytes, version.chunks, version.base, version.time)
            columns = sizes if version.finished else ("unfinished",)
            _print(*_columns(contents.place), version.number, *columns, version.uid)
        for snapshot in contents.snapshots:
            sizes = (snapshot.records, snapshot.bytes, snapshot.chunks, None, snapshot.time)
            columns = sizes if snapshot.finished else ("unfinished",)
            _print(*_columns(contents.place), f"snapshot of {snapshot.number}", *columns, snapshot.name)


def _move(args: argparse.Namespace) -> None:
    with _state(args) as state:
        previous = state.query(args.query).checkpoint
        state.move(args.query, args.checkpoint)
    print(f"{args.query}: moved from {previous} to {args.checkpoint}")


def _delete(args: argparse.Namespace) -> int | None:
    with _state(args) as state:
        query = state.query(args.query)
        if not args.yes and not sys.stdin.isatty():
            raise ValueError("delete asks for confirmation, and there is no terminal: use --yes")
        question = f"Remove the state of query {query.id}, whose checkpoint is {query.checkpoint}? [y/N] "
        if not (args.yes or input(question).strip().lower() in ("y", "yes")):
            print("nothing was removed", file=sys.stderr)
            return 1

        def report(progress: Progress) -> None:
            print(f"{progress.place or 'the query'}: {progress.removed} records removed", file=sys.stderr)

        removed = state.delete(query.id, report)
    print(f"{query.id}: {removed} records removed")
    return None


def _settings(args: argparse.Namespace) -> None:
    options: Options = {name: getattr(args, name) for name in Options.__annotations__}  # type: ignore[assignment]
    for name, value in settings(args.url, args.table, **options).items():
        print(f"{name} {value}")


@contextmanager
def _state(args: argparse.Namespace) -> Iterator[State]:
    files = {name: getattr(args, name) for name in FILES}
    files["token_file"] = files["token_file"] or os.environ.get("TABLESIDE_TOKEN_FILE") or None
    with Client(args.url, **files) as client, State(client, args.table) as state:
        yield state


def _columns(place: Place) -> tuple[int, int, str]:
    return place.operator, place.partition, place.store


def _print(*words: object) -> None:
    print("\t".join("-" if word is None else str(word) for word in words))


if __name__ == "__main__":
    sys.exit(main())
