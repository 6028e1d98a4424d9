"""Run the demonstration: start the service, run the job, check every figure, show, stop."""

import argparse
import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from examples.demo import check, flights, job, stores
from examples.demo.progress import Progress
from examples.demo.service import Service, running
from examples.demo.session import HERE, session
from pyspark.sql import Row, SparkSession
from rich.console import Console
from rich.table import Table

AIRCRAFT_SHOWN = "N725MQ"
PLAIN_WIDTH = 120


class Different(Exception):
    """The service's records differ from Spark's computation."""


def main() -> None:
    """Run the demonstration with the options of the command line. Exit with 1 if a figure is wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    progress = Progress(Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH))
    try:
        with _folder(options.data, keep=options.keep) as folder:
            with (
                stores.place(options.store, folder, _token(options.token_file)) as place,
                running(
                    folder, options.port, keep=options.keep, config=place.config, environment=place.environment
                ) as service,
            ):
                progress.say(f"the service runs at {service.url}, process {service.process.pid}, {place.words}")
                _run(service, options, progress)
            progress.say("left running" if options.keep else "the service is stopped")
            if options.keep:
                _explain(service)
    except Different as different:
        sys.exit(f"DIFFERENT: {different}")
    except KeyboardInterrupt:
        progress.say("interrupted; the service is stopped")
        sys.exit(130)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the service running at the end")
    parser.add_argument("--data", type=Path, help="an empty or new folder for the records (default: a temporary one)")
    parser.add_argument("--port", type=int, help="the port of the service (default: 8080, or any free port)")
    parser.add_argument("--store", choices=stores.KINDS, default=stores.EMBEDDED, help="the store of the records")
    parser.add_argument("--token-file", type=Path, help="a file with the token that the service requires")
    parser.add_argument(
        "--master", default=HERE, help="the URL of a Spark cluster whose workers can read this machine's files"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights (default: all)")
    options = parser.parse_args()
    if options.keep and options.token_file:
        parser.error("--keep says how to ask the service without a token")
    if any("=" not in setting for setting in options.conf):
        parser.error("--conf takes NAME=VALUE")
    if options.keep and options.store != stores.EMBEDDED:
        parser.error("--keep leaves the service running, but not the server of another store than rocksdb")
    return options


@contextlib.contextmanager
def _folder(data: Path | None, *, keep: bool) -> Iterator[Path]:
    """Provide the folder for the records. Delete a temporary one at the end, unless the service still needs it."""
    if data is None:
        folder = Path(tempfile.mkdtemp(prefix="tableside-demo-"))
    elif data.exists() and any(data.iterdir()):
        sys.exit(f"{data} is not empty: flights would be added to the existing records")
    else:
        data.mkdir(parents=True, exist_ok=True)
        folder = data.resolve()
    kept = False
    try:
        yield folder
        kept = keep
    finally:
        if data is None and not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _token(file: Path | None) -> str | None:
    return None if file is None else file.read_text(encoding="utf-8").strip()


def _run(service: Service, options: argparse.Namespace, progress: Progress) -> None:
    """Run all steps against a running service."""
    with tempfile.TemporaryDirectory(prefix="tableside-spark-") as name:
        scratch = Path(name)
        with progress.step("unpack the data and start Spark"):
            flights.prepare(scratch, options.flights)
            started = contextlib.ExitStack()
            conf = dict(setting.split("=", 1) for setting in options.conf)
            spark = started.enter_context(session(scratch, options.master, conf))
        token_file = None if options.token_file is None else str(options.token_file.resolve())
        with started:
            _steps(spark, scratch, job.Reach(service.url, token_file), progress)


def _steps(spark: SparkSession, scratch: Path, service: job.Reach, progress: Progress) -> None:
    data = job.read_flights(spark, scratch)
    with progress.step("put planes, airports and airlines") as step:
        step.rows = job.load(spark, scratch, service)
    joined = str(scratch / "joined.parquet")
    with progress.step("join flights with planes, airports and airlines") as step:
        job.enrich(data.every, service).write.parquet(joined)
        step.rows = spark.read.parquet(joined).count()
    with progress.step("update one record per aircraft") as step:
        step.rows = job.keep_count(data, service)
    unassigned = data.unassigned.count()
    progress.say(f"  of them {data.cancelled.count():,} were cancelled; {unassigned:,} more never had an aircraft")
    aircraft = job.read_aircraft(spark, service)
    with progress.step("scan the aircraft and check every figure") as step:
        expected = check.expected_aircraft(data)
        step.rows = _verify(check.compare(expected, check.sort_destinations(aircraft)), "aircraft", progress)
    with progress.step("check every joined flight") as step:
        expected = check.expected_join(spark, data.every, scratch)
        step.rows = _verify(check.compare(expected, spark.read.parquet(joined)), "joined flights", progress)
    with progress.step("scan again and ask for the planes of the busiest") as step:
        busiest = job.busiest(aircraft, service)
        step.rows = len(busiest)
    progress.console.print(_table(busiest), progress.costs())


def _verify(comparison: check.Comparison, what: str, progress: Progress) -> int:
    """Print that all figures are equal, and return the number of compared rows. Raise `Different` otherwise."""
    if comparison.differing:
        lines = [f"  {row.expected} times by Spark, {row.actual} by the service: {row}" for row in comparison.differing]
        raise Different("\n".join([f"among {comparison.rows:,} {what}, for example", *lines]))
    progress.say(f"  EQUAL: {comparison.rows:,} {what}, {comparison.figures:,} figures, none differs")
    return comparison.rows


def _table(busiest: list[Row]) -> Table:
    table = Table(title="The busiest aircraft", title_justify="left")
    table.add_column("aircraft", no_wrap=True)
    table.add_column("plane", no_wrap=True, max_width=24)
    for heading in ("flights", "miles", "cancelled", "max delay", "places"):
        table.add_column(heading, justify="right")
    for heading in ("first", "last"):
        table.add_column(heading, no_wrap=True)
    for row in busiest:
        plane = f"{row.manufacturer} {row.model}" if row.manufacturer else "(not in the table)"
        figures = [f"{figure:,}" for figure in (row.flights, row.miles, row.cancelled)]
        days = row.first_departure[:10], row.last_departure[:10]
        table.add_row(row.tailnum, plane, *figures, f"{row.worst_delay_min} min", str(len(row.destinations)), *days)
    return table


def _explain(service: Service) -> None:
    """Print how to send requests to the running service, and how to stop it."""
    tables = f"{service.url}/v1/tables"
    print(
        f"\nThe service is still running at {service.url} as process {service.process.pid}. Ask it:\n"
        f"  curl {tables}/aircraft/records/{AIRCRAFT_SHOWN}\n"
        f"  curl {shlex.quote(f'{tables}/aircraft/records/{AIRCRAFT_SHOWN}?fields=flights,miles')}\n"
        f"  curl {shlex.quote(f'{tables}/aircraft/records?prefix=N72&limit=3')}\n"
        f"Its pages: {service.url}/docs\n"
        f"Its log:   {service.log}\n"
        f"Stop it:   kill {service.process.pid}"
    )


if __name__ == "__main__":
    main()
