"""A topic of flight events, and what they come to for each aircraft: counted here, and in the table."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
from examples.demo import flights

from support.kafka_topics import Received, create_topic, send
from tableside_spark import TableClient

PARTITIONS = 4
NO_AIRCRAFT = "none"
"""The key of flights that were cancelled before an aircraft was named."""
REPEATED = 3

Event = dict[str, Any]
Aircraft = dict[str, dict[str, Any]]
"""The figures of each aircraft, by its tail number."""


def flight_events(count: int, folder: Path) -> Iterator[Event]:
    """So many events: the first flights of a year, several times under other numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    flights.prepare(folder, count // REPEATED)
    found = pyarrow.parquet.read_table(folder / "flights.parquet").to_pylist()
    for number in range(count):
        flight = found[number % len(found)]
        yield {
            "id": number,
            "tailnum": flight["tailnum"] or NO_AIRCRAFT,
            "distance": flight["distance"],
            "air_time": flight["air_time"] or 0,
            "dest": flight["dest"],
            "at": f"{flight['time_hour']:%Y-%m-%dT%H:%M}",
        }


def fill(address: str, events: Iterable[Event]) -> str:
    """Make a topic of the events."""
    topic = create_topic(address, PARTITIONS)
    send(address, topic, (Received(event["id"] % PARTITIONS, None, json.dumps(event).encode()) for event in events))
    return topic


def counted(events: Iterable[Event]) -> Aircraft:
    """What the events come to."""
    found: Aircraft = {}
    for event in events:
        nothing_yet = {"flights": 0, "miles": 0, "latest": "", "longest_min": 0, "destinations": []}
        figures = found.setdefault(event["tailnum"], nothing_yet)
        figures["flights"] += 1
        figures["miles"] += event["distance"]
        figures["latest"] = max(figures["latest"], event["at"])
        figures["longest_min"] = max(figures["longest_min"], event["air_time"])
        figures["destinations"] = sorted({*figures["destinations"], event["dest"]})
    return found


def counted_in_table(url: str, table: str) -> Aircraft:
    """What the records of a table say, with the destinations, which are a set, in order."""
    with TableClient(url) as client:
        rows = [row for page in client.scan(table) for row in page.to_pylist()]
    found = {row["key"]: json.loads(row["value"]) for row in rows}
    return {key: {**figures, "destinations": sorted(figures["destinations"])} for key, figures in found.items()}
