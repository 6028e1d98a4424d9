"""The start of the application."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.server

PROGRAM = """
import asyncio, sys
from tableside.app import create_app
from tableside.settings import validate

async def main():
    app = create_app(validate({"stores": {"s": {"kind": "memory"}}, "tables": {"t": {"store": "s"}}}))
    async with app.router.lifespan_context(app):
        print("pandas" in sys.modules)

asyncio.run(main())
"""


def test_pandas_is_imported_before_the_first_request() -> None:
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
