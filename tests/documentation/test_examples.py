"""A test covers every block. Blocks that cannot run are valid, and the options, modules and extras in them exist."""

import json
import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pyspark
import pytest
import yaml
from packaging.requirements import Requirement

from documentation.blocks import Block, every_block
from documentation.claims import (
    BASED,
    CLAIMS,
    CONFIGURED,
    CONTAINED,
    NAMED,
    READ,
    SUBMITTED,
    claimed,
    claims_of,
    covers,
)
from documentation.verbs import options_of
from scripts.bootstrap import ROOT
from tableside.settings import validate


@pytest.mark.parametrize("block", every_block(), ids=str)
def test_every_block_is_claimed(block: Block) -> None:
    assert claims_of(block), f"{block} is claimed by no test: see tests/documentation/claims.py\n{block.text}"


@pytest.mark.parametrize("test", CLAIMS)
def test_a_claim_names_existing_blocks_and_an_existing_test(test: str) -> None:
    assert [claim for claim in CLAIMS[test] if not any(covers(claim, block) for block in every_block())] == []
    file, _, name = test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(async )?def {name}\b", text, re.MULTILINE)


@pytest.mark.parametrize("block", claimed(CONFIGURED), ids=str)
def test_a_configuration_has_no_faults(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.yaml").write_text("[]\n")
    part = yaml.safe_load(block.text)
    named = {table["store"] for table in part.get("tables", {}).values()} or {"local"}
    stores = {name: {"kind": "memory"} for name in named}
    validate({"stores": stores, **part}, {"ORDERS_DSN": "postgresql://127.0.0.1/orders"})


@pytest.mark.parametrize("block", claimed(READ), ids=str)
def test_json_blocks_are_valid(block: Block) -> None:
    assert isinstance(json.loads(block.text), dict | list)


@pytest.mark.parametrize("block", claimed(NAMED), ids=str)
def test_named_modules_exist(block: Block) -> None:
    packages = (ROOT / "service" / "tableside", ROOT / "spark_client", ROOT / "spark_client" / "tableside_spark")
    assert set(re.findall(r"[a-z_]+", block.text)) <= {path.stem for package in packages for path in package.iterdir()}


@pytest.mark.parametrize("block", claimed(CONTAINED), ids=str)
def test_container_commands_use_existing_options(block: Block) -> None:
    for line in block.text.splitlines():
        docker, verb, *given = shlex.split(line)
        assert docker == "docker"
        if verb == "build":
            assert (ROOT / given[-1] / "Dockerfile").is_file()
        else:
            assert verb == "run"
            # The command for the container follows the image's name, or an ellipsis that includes it.
            image = next(
                at for at, word in enumerate(given) if word in ("tableside", "…") and given[at - 1] != "--name"
            )
            if command := given[image + 1 :]:
                assert {word for word in command if word.startswith("--")} <= options_of(command)


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a shell block, each as a list of words."""
    return [shlex.split(line) for line in block.text.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def options() -> set[str]:
    """The options in the help of `spark-submit`."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = subprocess.run([spark_submit, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z-]+", told.stdout + told.stderr))


@pytest.mark.parametrize("block", claimed(SUBMITTED), ids=str)
def test_spark_submit_has_the_options(block: Block, options: set[str]) -> None:
    submits = [words for words in commands(block) if words[0] == "spark-submit"]
    assert submits
    for words in submits:
        assert {word for word in words if word.startswith("--")} <= options
        for before, after in pairwise(words):
            assert before != "--conf" or re.fullmatch(r"spark\.[\w.]+=\S+", after), after


@pytest.mark.parametrize("block", claimed(BASED), ids=str)
def test_an_image_installs_the_projects_requirements(block: Block) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    said = [Requirement(text) for text in re.findall(r'"([a-z]+[<>=!][^"]*)"', block.text)]
    assert {one.name for one in said} == {"tableside", "pandas"}
    [pandas] = [one for one in said if one.name == "pandas"]
    assert pandas in [Requirement(text) for text in wanted["spark"]]
