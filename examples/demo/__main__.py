"""Run the demonstration: start the service, run the job, check every figure, show, stop."""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from examples.demo import check, explanation, flights, job, stores
from examples.demo.progress import Part, Progress
from examples.demo.restart import killed_during
from examples.demo.service import Service, running
from examples.demo.session import HERE, RowsRead, session, warm_up
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

PLAIN_WIDTH = 120
SHORT_RUN = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"
}  # the better compiler pays off in longer runs
SMALL_FILE = {"spark.sql.files.maxPartitionBytes": "1m"}  # several tasks for each core


class Different(Exception):
    """The service's records differ from Spark's computation."""


def main() -> None:
    """Run the demonstration with the options of the command line. Exit with 1 if a figure is wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    progress = Progress(Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH))
    try:
        with _folder(options.data, keep=options.keep) as folder:
            with stores.place(options.store, folder, _token(options.token_file)) as place:
                service = _run(options, folder, place, progress)
            progress.say("left running" if options.keep else "the service is stopped")
            print(explanation.text(service, keep=options.keep))
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


def _run(options: argparse.Namespace, folder: Path, place: stores.Place, progress: Progress) -> Service:
    """Start everything, run all steps, and stop everything except a service that continues to run."""
    with tempfile.TemporaryDirectory(prefix="tableside-spark-") as name, contextlib.ExitStack() as started:
        scratch = Path(name)
        with progress.step("start Spark and the service, and unpack the data", Part.START):
            service, spark = _start(options, scratch, started, lambda: _running(options, folder, place))
        progress.say(f"the service runs at {service.url}, process {service.process.pid}, {place.words}")
        token_file = None if options.token_file is None else str(options.token_file.resolve())
        _steps(spark, scratch, Demonstration(service, job.Reach(service.url, token_file), progress))
    return service


def _running(
    options: argparse.Namespace, folder: Path, place: stores.Place
) -> contextlib.AbstractContextManager[Service]:
    return running(folder, options.port, keep=options.keep, config=place.config, environment=place.environment)


def _start(
    options: argparse.Namespace,
    scratch: Path,
    started: contextlib.ExitStack,
    serving: Callable[[], contextlib.AbstractContextManager[Service]],
) -> tuple[Service, SparkSession]:
    """Start the service and unpack the data while Spark starts in the main thread, which its signals require."""
    conf = SMALL_FILE | SHORT_RUN | dict(setting.split("=", 1) for setting in options.conf)
    with ThreadPoolExecutor(max_workers=2) as pool:
        service = pool.submit(lambda: started.enter_context(serving()))
        data = pool.submit(flights.prepare, scratch, options.flights)
        spark = started.enter_context(session(scratch, options.master, conf))
        warm_up(spark)
        data.result()
        return service.result(), spark


@dataclass(frozen=True)
class Demonstration:
    """The objects that all steps share: the service's process, its address, and the progress."""

    service: Service
    reach: job.Reach
    progress: Progress

    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the service."""
        file = self.reach.token_file
        return {} if file is None else {"Authorization": f"Bearer {_token(Path(file))}"}


def _steps(spark: SparkSession, scratch: Path, shown: Demonstration) -> None:
    progress, service = shown.progress, shown.reach
    joined = scratch / "joined.parquet"
    with progress.step("put planes, airports and airlines", Part.WORK, RowsRead(spark)) as step:
        step.rows = job.load(spark, scratch, service)
        data = job.read_flights(spark, scratch)
    with progress.step("join flights with planes, airports and airlines", Part.WORK, RowsRead(spark)) as step:
        job.enrich(data.every, service).write.parquet(str(joined))
        step.rows = flights.count(joined)
    with (
        progress.step("update one record per aircraft, and kill the service", Part.WORK, RowsRead(spark)) as step,
        killed_during(shown.service, progress, shown.headers()),
    ):
        counted = job.keep_count(data, service)
        step.rows = counted.flights
    progress.say(f"  sent again: {counted.sent_again:,} flights; already applied, so ignored: {counted.replayed:,}")
    with progress.step("scan the aircraft", Part.WORK, RowsRead(spark)) as step:
        aircraft = job.read_aircraft(spark, service).toArrow()
        step.rows = len(aircraft)
    _check(scratch, aircraft, joined, progress)
    progress.console.print(_table(job.busiest(aircraft, service)), progress.costs())


def _check(scratch: Path, aircraft: pa.Table, joined: Path, progress: Progress) -> None:
    """Compute the records and the joined flights from the files alone, and compare all figures."""
    with progress.step("check every aircraft", Part.CHECK) as step:
        data = check.read_flights(scratch)
        expected = check.expected_aircraft(data)
        step.rows = _verify(check.compare(expected, check.join_destinations(aircraft)), "aircraft", progress)
    with progress.step("check every joined flight", Part.CHECK) as step:
        expected = check.expected_join(data, scratch)
        step.rows = _verify(check.compare(expected, flights.read(joined)), "joined flights", progress)


def _verify(comparison: check.Comparison, what: str, progress: Progress) -> int:
    """Print that all figures are equal, and return the number of compared rows. Raise `Different` otherwise."""
    if comparison.differing:
        raise Different("\n".join([f"among {comparison.rows:,} {what}, for example", *map(str, comparison.differing)]))
    progress.say(f"  EQUAL: {comparison.rows:,} {what}, {comparison.figures:,} figures, none differs")
    return comparison.rows


def _table(busiest: list[dict[str, Any]]) -> Table:
    table = Table(title="The busiest aircraft", title_justify="left")
    table.add_column("aircraft", no_wrap=True)
    table.add_column("plane", no_wrap=True, max_width=24)
    for heading in ("flights", "miles", "cancelled", "max delay", "places"):
        table.add_column(heading, justify="right")
    for heading in ("first", "last"):
        table.add_column(heading, no_wrap=True)
    for row in busiest:
        plane = "{manufacturer} {model}".format(**row["plane"]) if row["plane"] else "(not in the table)"
        figures = [f"{row[name]:,}" for name in ("flights", "miles", "cancelled")]
        days = row["first_departure"][:10], row["last_departure"][:10]
        delay, places = f"{row['worst_delay_min']} min", str(len(row["destinations"]))
        table.add_row(row["tailnum"], plane, *figures, delay, places, *days)
    return table


if __name__ == "__main__":
    main()
