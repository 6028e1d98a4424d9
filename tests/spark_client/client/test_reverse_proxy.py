"""A reverse proxy that decodes and normalizes paths, and that compresses responses."""

import gzip
import posixpath
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest

from support.running import Service
from tableside_client import PreconditionFailed

pytestmark = pytest.mark.server


class ReverseProxy(ThreadingHTTPServer):
    """Forwards requests. `etags` are those of compressed responses: of nginx (weak) or of Apache (with a suffix)."""

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.etags = "nginx"
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def etag(self, etag: str) -> str:
        return f"W/{etag}" if self.etags == "nginx" else f'{etag[:-1]}-gzip"'


class Handler(BaseHTTPRequestHandler):
    server: ReverseProxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, mark, query = self.path.partition("?")
        decoded = re.sub(";[^/]*", "", unquote(unquote(path)).replace("\\", "/"))
        target = quote(posixpath.normpath(decoded), safe="/?#") + mark + query
        sent = {name: text for name, text in self.headers.items() if name not in ("Host", "Accept-Encoding")}
        answer = httpx.request(self.command, self.server.target + target, content=body, headers=sent)
        self.respond(answer, answer.content)

    def respond(self, answer: httpx.Response, body: bytes) -> None:
        skipped = ("content-length", "connection", "date", "server")
        headers = {name.lower(): text for name, text in answer.headers.items() if name.lower() not in skipped}
        if body and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body)
            headers["content-encoding"] = "gzip"
            if "etag" in headers:
                headers["etag"] = self.server.etag(headers["etag"])
        self.send_response(answer.status_code)
        for name, text in headers.items():
            self.send_header(name, text)
        if answer.status_code != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST = forward  # noqa: N815 - names of the base class

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(service: Service) -> Iterator[ReverseProxy]:
    with ReverseProxy(service.url) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


KEYS = ["a/b", "/a", "a//b", "a/../b", "..", "%2F", "100%", "%41", "a\\b", "a;b", "a?b=1", "a#b", "a\nb", "ü+ü", "a"]


@pytest.mark.parametrize("key", KEYS)
async def test_no_key_is_changed_by_a_proxy_that_decodes_paths(
    opened: Callable[..., Any], proxy: ReverseProxy, name: str, key: str
) -> None:
    table, direct = (await opened(proxy.url)).table(name), (await opened()).table(name)
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


@pytest.mark.parametrize("etags", ["nginx", "apache"])
@pytest.mark.parametrize("key", ["a", "a/b"])
async def test_etags_that_pass_a_compressing_proxy_match(
    opened: Callable[..., Any], proxy: ReverseProxy, name: str, etags: str, key: str
) -> None:
    proxy.etags = etags
    table = (await opened(proxy.url)).table(name)
    await table.put(key, {"text": "x" * 2_000})
    record = await table.record(key)
    written = await table.update(key, {"$set": {"n": 1}}, if_match=record.etag, return_value=True)
    [scanned] = [found async for found in table.scan()]
    assert scanned.etag == written.etag
    await table.put(key, {"n": 2}, if_match=written.etag)
