"""Tutorial pages: every command and program runs in order, and its output is compared with the page."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from documentation.blocks import Block, blocks
from documentation.claims import RUN, claims_of
from documentation.page_run import PageRun
from scripts.bootstrap import ROOT
from spark_client.sessions import session
from tableside_client import Client

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("documents"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        yield started


@contextmanager
def followed(
    page: str, directory: Path, names: Mapping[str, Any] | None = None, said: Mapping[str, str] | None = None
) -> Iterator[PageRun]:
    """Run the blocks of a page, except blocks of other tests, and keep its service running within the context.

    `page` may end with `#` and the heading of a section, to run only its blocks.
    """
    name, _, heading = page.partition("#")
    found = [block for block in section(name, heading) if RUN in claims_of(block)]
    assert found
    with PageRun(directory, names or {}, said) as run:
        for block in found:
            run.do(block)
        yield run


def section(page: str, heading: str) -> list[Block]:
    """Return the blocks of a section, or of the whole page if the heading is empty."""
    if not heading:
        return blocks(page)
    before, _, rest = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    first = before.count("\n") + 1
    last = first + rest.partition("\n## ")[0].count("\n") + 1
    return [block for block in blocks(page) if first < block.line <= last]


@pytest.mark.parametrize("page", ["quick-start", "replacing-a-table"])
def test_the_blocks_of_a_page_run(page: str, spark: SparkSession, tmp_path: Path) -> None:
    with followed(f"docs/{page}.md", tmp_path, {"spark": spark}):
        pass


@pytest.mark.parametrize("page", ["python", "command-line", "ordered-writes"])
def test_the_blocks_of_a_page_without_spark_print_the_documented_output(page: str, tmp_path: Path) -> None:
    with followed(f"docs/{page}.md", tmp_path):
        pass


@pytest.mark.daily
def test_a_stream_counts_from_a_default(spark: SparkSession, tmp_path: Path) -> None:
    # A running Spark resolves relative file names against its own working directory.
    said = {'json("clicks")': f'json("{tmp_path}/clicks")', 'start("checkpoint"': f'start("{tmp_path}/checkpoint"'}
    page = "docs/migrating.md#Samza's Table API"
    with followed(page, tmp_path, {"spark": spark}, said) as run, Client(run.url) as tables:
        assert tables.table("page_counts").record("/new").value == {"clicks": 1, "last": 4}


@pytest.mark.daily
def test_the_records_of_a_dapr_app_are_moved_once(redis_url: str, tmp_path: Path) -> None:
    page, heading = "docs/migrating.md", "Dapr's state API"
    states = {"shop||ada": '{"items": ["book", "pen"]}', "shop||visits": "7", "shop||brief": "{}", "other||ada": "{}"}
    with redis.Redis.from_url(redis_url) as dapr:
        for name, data in states.items():
            dapr.hset(name, mapping={"data": data, "version": 1})
        dapr.expire("shop||brief", 600)
        dapr.set("shop||no hash", "is another tool's")
        before = {name: dapr.hgetall(name) for name in states}
        said = {"redis://127.0.0.1:6379/0": redis_url}
        with followed(f"{page}#{heading}", tmp_path, said=said) as run, Client(run.url) as tables:
            assert tables.table("carts").record("ada").expires_at is None
            assert tables.table("carts").record("brief").expires_at is not None
            tables.table("carts").put("ada", {"items": []})
            [program] = [block for block in section(page, heading) if block.language == "python"]
            dapr.hset("shop||", mapping={"data": "{}", "version": 1})
            run.do(program)
            assert run.printed == "not copied: a state with an empty key\n0 copied, 3 there already\n"
            assert tables.table("carts").record("ada").value == {"items": []}
            assert sum(map(len, tables.arrow_table("carts").scan())) == 3
        assert {name: dapr.hgetall(name) for name in states} == before
        dapr.delete(*states, "shop||", "shop||no hash")


@pytest.mark.daily
def test_features_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    with (
        followed("docs/migrating.md#Feast's online store", tmp_path, {"spark": spark}) as run,
        Client(run.url) as tables,
    ):
        assert tables.table("driver_hourly_stats").record(1001).expires_at is not None
