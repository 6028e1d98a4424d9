"""A topic of flight events, and the figures of each aircraft, computed here and read from the table."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
from examples.demo import flights

from support.kafka_topics import Received, create_topic, send
from tableside_client import Client

PARTITIONS = 4
NO_AIRCRAFT = "none"
"""The key of flights that were cancelled before an aircraft was assigned."""
REPEATED = 3

Event = dict[str, Any]
Aircraft = dict[str, dict[str, Any]]
"""The figures of each aircraft, by its tail number."""


def flight_events(count: int, folder: Path) -> Iterator[Event]:
    """Yield this many events: the first flights of a year, repeated with new ids."""
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
    """Create a topic with the events, and return its name."""
    topic = create_topic(address, PARTITIONS)
    send(address, topic, (Received(event["id"] % PARTITIONS, None, json.dumps(event).encode()) for event in events))
    return topic


def counted(events: Iterable[Event]) -> Aircraft:
    """Return the figures of each aircraft from the events."""
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
    """Return the figures in the records of a table, with sorted destinations, since they are a set."""
    with Client(url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    found = {row["key"]: json.loads(row["value"]) for row in rows}
    return {key: {**figures, "destinations": sorted(figures["destinations"])} for key, figures in found.items()}
