"""The examples of the pages work: every set of values is rendered, and the service accepts its configuration."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from deploy.chart.rendering import (
    CHART,
    REMOTE,
    configuration,
    container,
    merged,
    pod,
    pod_security_faults,
    render,
)
from deploy.chart.values_table import described
from documentation.blocks import Block, blocks
from scripts.bootstrap import ROOT
from tableside.server.response_sender import UNREAD_BYTES_MAX
from tableside.settings import LimitSettings, load
from tableside.stores.rocksdb import RocksdbSettings

PAGES = ("docs/kubernetes.md", "helm/README.md")
BLOCKS = [block for page in PAGES for block in blocks(page)]

MIB = 2**20


MEMBERS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")).keys()


def values() -> list[Block]:
    return [one for one in BLOCKS if one.language == "yaml" and yaml.safe_load(one.text).keys() <= MEMBERS]


def completed(block: Block) -> dict[str, Any]:
    """Return the values of a block. Those without stores are an addition to the first values of the page."""
    own, first = (yaml.safe_load(one.text) for one in (block, values()[0]))
    return own if "stores" in own.get("config", {}) else merged(first, own)


def others() -> list[Block]:
    return [one for one in BLOCKS if one.language == "yaml" and one not in values()]


@pytest.mark.parametrize("block", values(), ids=str)
def test_values_of_a_page_render_and_the_service_accepts_their_configuration(block: Block, tmp_path: Path) -> None:
    objects = render(completed(block))
    assert pod_security_faults(pod(objects)["spec"]) == []
    text, tokens = configuration(objects), tmp_path / "tokens.yaml"
    tokens.write_text(f"[{{name: a, sha256: {'ab' * 32}}}]\n")
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("/etc/tableside-secrets/tokens/tokens.yaml", str(tokens)))
    dsn = "postgresql://user:secret@database/orders"
    given = {one["name"]: dsn if "DSN" in one["name"] else "secret" for one in container(objects).get("env", [])}
    assert load(file, given).auth is not None


def test_other_yaml_blocks_of_a_page_belong_to_other_tools() -> None:
    assert [(yaml.safe_load(one.text).get("kind"), "seriesQuery" in one.text) for one in others()] == [
        ("ClientTrafficPolicy", False),
        (None, True),
    ]


def commands() -> list[list[str]]:
    return [shlex.split(line) for one in BLOCKS if one.language == "sh" for line in one.text.splitlines()]


def test_commands_of_a_page_use_the_chart_and_existing_values() -> None:
    known = {".".join(path) for path, _ in described()}
    for words in commands():
        assert words[0] in ("helm", "kubectl", "scripts/image", "docker")
        if words[:2] == ["helm", "install"]:
            helm_python.validate_release_name(words[2])
            assert (ROOT / words[3]).samefile(CHART)
        for assignment in (after for before, after in pairwise(words) if before == "--set"):
            assert assignment.partition("=")[0] in known


def test_a_page_installs_the_image_that_it_built_and_pushed() -> None:
    made = [words[-1] for words in commands() if words[0] == "scripts/image"]
    pushed = [words[-1] for words in commands() if words[:2] == ["docker", "push"]]
    [install] = [words for words in commands() if any(word.startswith("image.repository=") for word in words)]
    asked = dict(after.split("=", 1) for before, after in pairwise(install) if before == "--set")
    [image] = made
    assert pushed == [image]
    image_values = {"repository": asked["image.repository"], "tag": asked["image.tag"]}
    assert container(render(merged(REMOTE, {"image": image_values})))["image"] == image


def test_every_value_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    known = {".".join(path) for path, _ in described()}
    tops = {name.partition(".")[0] for name in known}
    named = {text for text in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)`", page) if text.partition(".")[0] in tops}
    assert len(named) > 5
    assert {text for text in named if not any(f"{text}.".startswith(f"{one}.") for one in known)} == set()


def test_the_page_quotes_the_numbers_of_the_chart() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    defaults: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert f"`preStopSleepSeconds` ({defaults['preStopSleepSeconds']})" in page
    assert f"a separate port, {defaults['ports']['probes']}," in page
    assert defaults["resources"]["requests"]["cpu"] == "500m"


def test_the_memory_of_a_pod_is_the_documented_sum_for_the_default_settings() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.split("\n### Memory\n")[1].split("\n#")[0]
    mebibytes = {
        name: int(number) for name, number in re.findall(r"^\| ([^|]+) \|.*\| ([0-9]+) \|$", section, re.MULTILINE)
    }
    total = mebibytes.pop("sum")
    assert total == sum(mebibytes.values())
    limits, database = LimitSettings(), RocksdbSettings(path="x")
    decoding = 8 * limits.body_bytes_max + 64 * MIB
    expected = {
        "RocksDB": database.block_cache_bytes + database.row_cache_bytes + 2 * database.write_buffer_bytes,
        "each connection with a request": limits.in_flight_max * 20 * 1024,
        "request bodies in flight": limits.bytes_in_flight_max + decoding,
        "each update in progress": decoding,
        "responses in flight": limits.response_bytes_max + UNREAD_BYTES_MAX,
    }
    assert {name: size / MIB for name, size in expected.items()} == {name: mebibytes[name] for name in expected}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert defaults["resources"]["requests"]["memory"] == f"{total}Mi"
    limit = int(defaults["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024
    assert 0 <= limit - total < 512, "the chart's limit is the sum, rounded up to 512 MiB"
    assert f"requests this sum and limits a pod to {limit // 1024} GiB" in " ".join(section.split())
