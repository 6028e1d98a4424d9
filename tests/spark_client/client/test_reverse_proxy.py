"""A reverse proxy that decodes and normalizes paths, and that compresses responses."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servers.nginx import decoding_nginx
from support.running import Service
from tableside_client import PreconditionFailed

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def proxy(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with decoding_nginx(tmp_path_factory.mktemp("nginx"), service.url) as url:
        yield url


KEYS = ["a/b", "/a", "a//b", "a/../b", "..", "%2F", "100%", "%41", "a\\b", "a;b", "a?b=1", "a#b", "a\nb", "ü+ü", "a"]


@pytest.mark.parametrize("key", KEYS)
async def test_no_key_is_changed_by_a_proxy_that_decodes_paths(
    opened: Callable[..., Any], proxy: str, name: str, key: str
) -> None:
    table, direct = (await opened(proxy)).table(name), (await opened()).table(name)
    await table.put(key, {"n": 1})
    await table.update(key, {"$inc": {"n": 1}})
    assert await direct.get_many(KEYS) == {key: {"n": 2}}
    assert await table.get(key) == {"n": 2}
    await table.delete(key)
    assert await direct.get_many(KEYS) == {}


@pytest.mark.parametrize("key", ["a", "a/b"])
async def test_an_etag_with_quotes_or_of_a_compressed_response_is_explained(people: Any, key: str) -> None:
    etag = (await people.put(key, {"n": 1})).etag
    for changed, reason in (
        (f'"{etag}"', "the quotes around an etag in HTTP are not part of it"),
        (f'W/"{etag}"', "a weak etag"),
        (f"{etag}-gzip", "turn off compression there"),
        ("ü\n", "the record has another version"),
    ):
        with pytest.raises(PreconditionFailed, match=reason):
            await people.put(key, {"n": 2}, if_match=changed)


@pytest.mark.parametrize("key", ["a", "a/b"])
async def test_etags_that_pass_a_compressing_proxy_match(
    opened: Callable[..., Any], proxy: str, name: str, key: str
) -> None:
    table = (await opened(proxy)).table(name)
    await table.put(key, {"text": "x" * 2_000})
    record = await table.record(key)
    written = await table.update(key, {"$set": {"n": 1}}, if_match=record.etag, return_value=True)
    [scanned] = [found async for found in table.scan()]
    assert scanned.etag == written.etag
    await table.put(key, {"n": 2}, if_match=written.etag)
