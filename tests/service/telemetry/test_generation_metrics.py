"""The metrics of generations, also with several worker processes."""

import re
from pathlib import Path

import httpx
import pytest

from support.running import running
from support.waiting import until

pytestmark = pytest.mark.server

SERIES = re.compile(r"^tableside_(generation\w*){(.*)} (\S+)$", re.MULTILINE)
ANEW = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each connection
TABLES = "tables:\n  plain: {store: r}\n  %s: {store: r, generations: true}\n"


def found(client: httpx.Client, table: str) -> dict[str, float]:
    """Return the metrics of generations, by their names without the prefix, and by state or reason."""
    text = client.get("/metrics").text.replace(f'table="{table}"', "")
    samples = {f"{name} {labels.strip(',')}".strip(): float(value) for name, labels, value in SERIES.findall(text)}
    return {name: value for name, value in samples.items() if "_created" not in name}


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.daily), 2])
def test_every_worker_shows_the_generations_of_a_table(workers: int, redis_url: str, tmp_path: Path) -> None:
    config, table = tmp_path / "tableside.yaml", f"measured-{workers}"
    path = f"/v1/tables/{table}/generations"
    config.write_text(f"stores: {{r: {{kind: redis, url: '{redis_url}'}}}}\n{TABLES % table}")
    with (
        running(tmp_path, config, workers=workers) as service,
        httpx.Client(base_url=service.url, limits=ANEW, timeout=60) as client,
    ):
        assert found(client, table) == {}
        for _ in range(3):
            assert client.post(path).status_code == 201
        until(lambda: found(client, table).get('generations state="loading"') == 3)
        assert found(client, table)["generation_loading_seconds"] > 0
        assert found(client, table)["generation_activations_total"] == 0
        assert client.delete(f"{path}/3").status_code == 204
        assert client.post(f"{path}/4/activate").status_code == 200
        assert client.post(f"{path}/1/activate").status_code == 200
        expected = {
            "generation": 1,
            'generations state="loading"': 0,
            'generations state="current"': 1,
            'generations state="kept"': 1,
            "generation_loading_seconds": 0,
            "generation_idle_seconds": 0,
            "generation_activations_total": 2,
            'generation_removals_total reason="deleted"': 1,
            'generation_removals_total reason="replaced"': 1,
        }
        until(lambda: all(expected.items() <= found(client, table).items() for _ in range(4 * workers)))
        assert not re.search('tableside_generation.*table="plain"', client.get("/metrics").text)
        for event in ("3 is removed: deleted", "2 is removed: replaced", "4 is current, after 1"):
            assert f"{table}: generation {event}" in service.log.read_text()
