"""With authentication, the console enforces the permissions of tokens."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from support.running import running

pytestmark = pytest.mark.server

CONFIG = """
stores: {local: {kind: memory}}
tables: {mine: {store: local}, shown: {store: local}, secret: {store: local}}
auth:
  tokens:
    - {name: me, sha256: "%s", read: [mine, shown], write: [mine]}
    - {name: root, sha256: "%s", read: ["*"], write: ["*"]}
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client whose token has limited permissions, of a service with one record in each table."""
    directory: Path = tmp_path_factory.mktemp("rights")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG % (sha256(b"mine").hexdigest(), sha256(b"all").hexdigest()))
    with running(directory, config) as service, httpx.Client(base_url=service.url) as opened:
        for table in ("mine", "shown", "secret"):
            path = f"/v1/tables/{table}/records/a"
            assert opened.put(path, json={"n": 1}, headers={"Authorization": "Bearer all"}).status_code == 204
        opened.headers["Authorization"] = "Bearer mine"
        yield opened


def test_pages_require_a_token(client: httpx.Client) -> None:
    answer = httpx.get(f"{client.base_url}/console")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def test_only_readable_tables_are_shown(client: httpx.Client) -> None:
    page = client.get("/console").text
    assert re.findall(r'<th scope="row"><a href="/console/tables/([^"]+)"', page) == ["mine", "shown"]
    assert "secret" not in page
    assert "<b>All tables OK</b>" in page


@pytest.mark.parametrize("path", ["", "/records", "/record?k0=a"])
def test_an_unreadable_table_has_no_page(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/console/tables/secret{path}")
    assert answer.status_code == 403
    assert "<code>forbidden</code>" in answer.text
    assert client.get(f"/console/tables/mine{path}").status_code == 200


def test_the_error_for_a_forbidden_table_does_not_reveal_whether_it_exists(client: httpx.Client) -> None:
    answers = [client.get(f"/console/tables/{table}/record?k0=a") for table in ("secret", "nowhere")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert answers[0].text == answers[1].text
