"""Single GETs on Redis over many connections, with and without calls of the store that requests share."""

import tempfile
from pathlib import Path
from statistics import median

import yaml
from demo.service import Service, running

from servers.redis import redis

from . import records, wrk
from .load import send_all
from .report import Result, group

CONNECTIONS = (1, 64, 256)
RECORDS = 5000
WITH, WITHOUT = "coalesced", "one call each"
TARGETS = {1: 0.9, 64: 1.5, 256: 1.5}
"""The least ratio to one call each, by connections."""

GET = f"""
math.randomseed(os.time())
request = function()
  return wrk.format("GET", string.format("/v1/tables/{records.TABLE}/records/N%06d", math.random(0, {RECORDS - 1})))
end
"""


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure both ways in turn, several times over, and return the medians in requests per second."""
    rates: dict[tuple[int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name, redis(Path(name)) as url:
        plain, shared = _folder(name, WITHOUT), _folder(name, WITH)
        with (
            running(plain, config=_config(plain, url, {})) as without,
            running(shared, config=_config(shared, url, {"batch": {"linger_s": 0}})) as coalesced,
        ):
            send_all(without.url, list(records.puts(RECORDS)))
            for _ in range(rounds):
                for connections in CONNECTIONS:
                    for way, service in ((WITHOUT, without), (WITH, coalesced)):
                        rates.setdefault((connections, way), []).append(_rate(service, connections, seconds))
    return [result for connections in CONNECTIONS for result in _results(rates, connections)]


def _results(rates: dict[tuple[int, str], list[float]], connections: int) -> list[Result]:
    ways = [(way, median(rates[connections, way])) for way in (WITHOUT, WITH)]
    return group(f"single GET, Redis, {connections} at once", "requests", ways, {WITH: TARGETS[connections]})


def _rate(service: Service, connections: int, seconds: float) -> float:
    return wrk.requests_per_second(service.url, GET, connections=connections, seconds=seconds)


def _folder(parent: str, name: str) -> Path:
    folder = Path(parent) / name
    folder.mkdir()
    return folder


def _config(folder: Path, url: str, policies: dict[str, object]) -> Path:
    """Write a configuration in which both services have the same records."""
    tables = {records.TABLE: {"store": "s", "create": True, **policies}}
    file = folder / "stores.yaml"
    file.write_text(yaml.safe_dump({"stores": {"s": {"kind": "redis", "url": url}}, "tables": tables}))
    return file
