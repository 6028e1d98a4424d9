"""Each case runs with the blocking and with the asyncio client."""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from spark_client.client.both import open_client
from spark_client.client.script import Script, Step
from support.running import Service, running

CONFIG = """
stores: {memory: {kind: memory}}
tables:
  numbers: {store: memory, key: {id: integer}}
  pairs: {store: memory, key: {user: string, day: integer}}
"""

GUARDED = """
stores: {{memory: {{kind: memory}}}}
tables: {{t: {{store: memory}}}}
auth: {{tokens: [{{name: job, sha256: "{digest}", read: ["*"], write: ["*"]}}]}}
"""


@pytest.fixture(params=["blocking", "asyncio"])
async def opened(request: pytest.FixtureRequest, service: Service) -> AsyncIterator[Callable[..., Any]]:
    """Returns a function that opens a client whose methods are coroutines. Its default URL is the service's."""
    async with AsyncExitStack() as stack:

        async def open_(url: str = service.url, **options: Any) -> Any:
            return await stack.enter_async_context(open_client(request.param, url, options))

        yield open_


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a table that no other case uses."""
    return f"client_{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"


@pytest.fixture
async def people(opened: Callable[..., Any], name: str) -> Any:
    """An empty table."""
    return (await opened()).table(name)


@pytest.fixture(scope="session")
def keyed_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a table of integer keys and one of composite keys."""
    yield from _configured(tmp_path_factory, CONFIG)


@pytest.fixture(scope="session")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that accepts the token `right`."""
    yield from _configured(tmp_path_factory, GUARDED.format(digest=hashlib.sha256(b"right").hexdigest()))


def _configured(tmp_path_factory: pytest.TempPathFactory, config: str) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("configured")
    path = directory / "tableside.yaml"
    path.write_text(config)
    with running(directory, path) as service:
        yield service.url


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    opened: list[Script] = []

    def play(*replies: Sequence[Step]) -> Script:
        opened.append(Script(*replies))
        return opened[-1]

    yield play
    for server in opened:
        server.close()
