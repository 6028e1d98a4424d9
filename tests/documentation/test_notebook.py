"""Each notebook runs from its first to its last cell, and gives the output that it shows."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from scripts.bootstrap import ROOT
from spark_client.quick_start import SUBMIT_ARGUMENTS
from support.running import running

pytestmark = [pytest.mark.daily, pytest.mark.server, pytest.mark.xdist_group("documents")]

CELL_S = 300


def printed(notebook: Any) -> list[str]:
    """Return the results and the standard output of each cell, without pictures."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    streams = [output.text for output in outputs if output.output_type == "stream" and output.name == "stdout"]
    results = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    return streams + results


@pytest.mark.parametrize("name", [pytest.param("flights", marks=pytest.mark.jvm), "frames"])
def test_a_notebook_gives_the_output_that_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    ran = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    with running(tmp_path) as service:
        monkeypatch.setenv("TABLESIDE_URL", service.url)
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGUMENTS)
        NotebookClient(ran, timeout=CELL_S, kernel_name="python3").execute()
    assert printed(shown)
    assert printed(ran) == printed(shown)
    assert any("image/png" in output.get("data", {}) for cell in ran.cells for output in cell.get("outputs", []))
