"""Compare the service's records with a computation in Arrow alone, from the same files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHOWN_MAX = 5
JOINED = ["departed_at", "carrier", "flight", "tailnum", "origin", "dest", "distance"]
START = {"flights": 0, "miles": 0, "cancelled": 0, "destinations": ""}


@dataclass(frozen=True)
class Comparison:
    """The number of compared rows and figures, and the first rows that occur more often on one side."""

    rows: int
    figures: int
    differing: list[dict[str, Any]]


def compare(expected: pa.Table, actual: pa.Table) -> Comparison:
    """Compare two tables in both directions, in every column of the expected one. The order of rows is ignored."""
    sides = [_side(expected, 1, 0), _side(actual.select(expected.column_names).cast(expected.schema), 0, 1)]
    columns = expected.column_names
    tally = pa.concat_tables(sides).group_by(columns).aggregate([("expected", "sum"), ("actual", "sum")])
    differing = tally.filter(pc.not_equal(tally["expected_sum"], tally["actual_sum"]))
    rows = pc.sum(tally["expected_sum"]).as_py() or 0
    return Comparison(rows, rows * len(columns), differing.slice(0, SHOWN_MAX).to_pylist())


def _side(rows: pa.Table, expected: int, actual: int) -> pa.Table:
    for name, number in (("expected", expected), ("actual", actual)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int64()), len(rows)))
    return rows


def read_flights(folder: Path) -> pa.Table:
    """Read the flights and add the departure time in UTC, which is null for a flight that did not depart."""
    flights = pq.read_table(folder / "flights.parquet")
    scheduled_s = pc.add(_seconds(flights["time_hour"]), pc.multiply(60, flights["minute"]))
    departed_s = pc.add(scheduled_s, pc.multiply(60, flights["dep_delay"]))
    departed_at = pc.strftime(departed_s.cast(pa.int64()).cast(pa.timestamp("s", "UTC")), format="%Y-%m-%dT%H:%M:%SZ")
    return flights.append_column("departed_at", departed_at)


def _seconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("s", "UTC")).cast(pa.int64())


def expected_aircraft(flights: pa.Table) -> pa.Table:
    """Return the expected records of the aircraft."""
    assigned = flights.filter(pc.is_valid(flights["tailnum"]))
    has_departed = pc.is_valid(assigned["departed_at"])
    departed = _aggregate(
        assigned.filter(has_departed),
        flights=("tailnum", "count"),
        miles=("distance", "sum"),
        first_departure=("departed_at", "min"),
        last_departure=("departed_at", "max"),
        worst_delay_min=("dep_delay", "max"),
        destinations=("dest", "distinct"),
    )
    departed = join_destinations(departed)
    cancelled = _aggregate(assigned.filter(pc.invert(has_departed)), cancelled=("tailnum", "count"))
    records = departed.join(cancelled, "tailnum", join_type="full outer")
    for name, start in START.items():
        filled = pc.fill_null(records[name], pa.scalar(start, records[name].type))
        records = records.set_column(records.column_names.index(name), name, filled)
    return records


def _aggregate(rows: pa.Table, /, **figures: tuple[str, str]) -> pa.Table:
    found = rows.group_by("tailnum").aggregate(list(figures.values()))
    names = {f"{column}_{function}": name for name, (column, function) in figures.items()}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def join_destinations(aircraft: pa.Table) -> pa.Table:
    """Replace the destinations by one sorted text, because a set has no order."""
    texts = [" ".join(sorted(places or [])) for places in aircraft["destinations"].to_pylist()]
    return aircraft.set_column(
        aircraft.column_names.index("destinations"), "destinations", pa.array(texts, pa.string())
    )


def expected_join(flights: pa.Table, folder: Path) -> pa.Table:
    """Return the flights with plane, destination and airline."""
    planes, airports, airlines = (
        pq.read_table(folder / f"{name}.parquet") for name in ("planes", "airports", "airlines")
    )
    airports = airports.select(["faa", "name", "lat", "lon"]).rename_columns(["dest", "destination", "lat", "lon"])
    airlines = airlines.select(["carrier", "name"]).rename_columns(["carrier", "airline"])
    joined = flights.select(JOINED).join(planes.select(["tailnum", "manufacturer", "model", "seats"]), "tailnum")
    return joined.join(airports, "dest").join(airlines, "carrier")
