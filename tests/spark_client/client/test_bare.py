"""The clients for Python need httpx and nothing else."""

import subprocess
import sys

import pytest

from support.running import Service

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
"""


@pytest.mark.server
def test_the_client_works_with_httpx_alone(service: Service) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, service.url], capture_output=True, text=True, timeout=120)
    assert done.stdout == "Person(name='Ada', visits=1) ['ada', 'grace'] 2\n", done.stderr
