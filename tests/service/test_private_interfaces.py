"""Packages with private or undocumented interfaces that the service uses: any release may change them."""

import tomllib
from pathlib import Path

import tableside

SERVICE = Path(tableside.__file__).parent


def test_the_versions_of_these_packages_have_upper_bounds() -> None:
    project = tomllib.loads((SERVICE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    names = ("redis[hiredis]", "uvicorn", "prometheus-client", "aiobotocore", "botocore")
    found = {line.partition(">")[0]: line for requirements in extras for line in requirements}
    assert [name for name in names if ",<" not in found[name]] == []
