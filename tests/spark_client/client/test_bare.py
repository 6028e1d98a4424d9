"""The clients for Python need httpx and nothing else, except that frames need pyarrow, but not pandas or Polars."""

import subprocess
import sys

import pytest

from support.running import Service

pytestmark = pytest.mark.server

PROGRAM = """
import sys

for name in ("pyarrow", "msgspec", "orjson", "pydantic", "pyspark", "tableside"):
    sys.modules[name] = None  # An import of it fails.

from dataclasses import dataclass

import tableside_client


@dataclass
class Person:
    name: str
    visits: int = 0


with tableside_client.Client(sys.argv[1]) as client:
    people = client.table("client_bare", Person)
    people.load([("ada", Person("Ada")), ("grace", Person("Grace"))])
    people.update("ada", {"$inc": {"visits": 1}})
    print(people.get("ada"), sorted(people.get_many(["ada", "grace"])), len(list(people.scan())))
    try:
        people.scan_frame()
    except ImportError as error:
        print(error)
"""

FRAMES = """
import sys

for name in ("pandas", "polars", "numpy", "pyspark", "tableside"):
    sys.modules[name] = None  # An import of it fails.

import pyarrow as pa
import tableside_client

with tableside_client.Client(sys.argv[1]) as client:
    people = client.table("client_bare_frames")
    people.load(pa.table({"key": ["ada"], "n": [1]}), key="key")
    people.update_frame(pa.table({"key": ["ada"], "m": [2]}), "key", {"$inc": {"n": tableside_client.col("m")}})
    keys = pa.table({"k": ["ada", None]})
    print(people.enrich(keys, "k", columns=["n"]).to_pylist(), people.scan_frame().to_pylist())
    try:
        people.scan_frame(kind="pandas")
    except ImportError as error:
        print(error)
"""


def printed(program: str, service: Service) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, service.url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_frames_of_pyarrow_need_neither_pandas_nor_polars(service: Service) -> None:
    assert printed(FRAMES, service) == [
        "[{'k': 'ada', 'n': 3}, {'k': None, 'n': None}] [{'key': 'ada', 'n': 3}]",
        'kind="pandas" needs pandas: pip install pandas',
    ]


def test_the_client_works_with_httpx_alone(service: Service) -> None:
    records = "Person(name='Ada', visits=1) ['ada', 'grace'] 2"
    assert printed(PROGRAM, service) == [records, "frames need pyarrow: pip install pyarrow"]
