"""The proxy of the environment: which addresses use it, and errors that name it."""

from collections.abc import Callable
from typing import Any

import pytest

from servers.process import free_port
from spark_client.client.script import CLOSE, Script, reply
from tableside.core import environment_proxy as service_proxy
from tableside_client import AsyncClient, Client, Retries, TablesideError, Unavailable
from tableside_client.address import environment_proxy

PROXY = "http://user:hidden-password@proxy.example:3128"
VARIABLES = [f"{scheme}_proxy" for scheme in ("http", "https", "all", "no")]
ONCE = Retries(attempts_max=1)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without proxies."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)


@pytest.mark.parametrize("function", [environment_proxy, service_proxy], ids=["client", "service"])
@pytest.mark.parametrize(
    ("url", "excluded", "used"),
    [
        ("http://host", "", True),
        ("http://127.0.0.1:8080", "", False),
        ("http://localhost:8080", "", False),
        ("http://host", "other, *", False),
        ("http://A.Example.", "a.EXAMPLE", False),
        ("http://another-example", "example", True),
        ("http://a.example:8080", "a.example:8080", False),
        ("http://a.example:8080", "a.example:9090", True),
        ("http://10.1.2.3:8080", "10.1.2.0/24:8080", False),
        ("http://[2001:db8::5]:8080", "2001:db8::/32", False),
        ("http://[2001:db8::5]:8080", "::1,fe80::/10,10.0.0.0/8,not an address/9", True),
    ],
)
@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_addresses_of_this_machine_and_of_no_proxy_have_no_proxy(
    function: Callable[[str], Any], url: str, excluded: str, used: bool, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv(variable, excluded)
    assert (function(url) is not None) == used


@pytest.mark.parametrize("function", [environment_proxy, service_proxy], ids=["client", "service"])
@pytest.mark.parametrize(
    ("url", "given", "chosen"),
    [
        ("http://host", {"HTTP_PROXY": "a:1", "http_proxy": "b:2"}, ("http_proxy", "http://b:2")),
        ("http://host", {"HTTP_PROXY": "a:1", "http_proxy": ""}, None),
        ("https://host", {"https_proxy": "https://a:1"}, ("https_proxy", "https://a:1")),
        ("https://host", {"ALL_PROXY": "socks5://a:1", "HTTP_PROXY": "b:2"}, ("ALL_PROXY", "socks5://a:1")),
        ("http://host", {"ALL_PROXY": "socks5://a:1", "HTTP_PROXY": "b:2"}, ("HTTP_PROXY", "http://b:2")),
    ],
)
def test_the_variable_of_the_scheme_is_used_before_that_for_all(
    function: Callable[[str], Any],
    url: str,
    given: dict[str, str],
    chosen: tuple[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, text in given.items():
        monkeypatch.setenv(variable, text)
    proxy = function(url)
    assert (proxy and (proxy.variable, proxy.url)) == chosen


@pytest.mark.server
async def test_a_service_on_this_machine_is_reached_without_the_proxy(
    opened: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "[::1]:80,fd00::/8")
    table = (await opened()).table(name)
    await table.put("a", {"n": 1})
    assert await table.get("a") == {"n": 1}


async def test_an_unreachable_proxy_is_not_an_unreachable_service(
    opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://user:hidden-password@127.0.0.1:{port}")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    for url, variable in (("http://service.example:8080", "HTTP_PROXY"), ("https://service.example", "https_proxy")):
        with pytest.raises(Unavailable) as failed:
            await (await opened(url, retries=ONCE)).table("t").put("a", {})
        assert (failed.value.code, failed.value.applied, failed.value.retriable) == ("proxy_failed", "no", True)
        assert failed.value.detail.startswith(
            f"{url}, through the proxy 127.0.0.1:{port} of {variable} (NO_PROXY names the hosts without a proxy): Conn"
        )
        assert "hidden" not in str(failed.value)


async def test_a_response_of_the_proxy_names_it(
    opened: Callable[..., Any], script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = script(*[[reply(b"", status=b"407 Proxy Authentication Required"), CLOSE]] * 2)
    monkeypatch.setenv("ALL_PROXY", refusing.url)
    for url in ("http://service.example", "https://service.example"):
        with pytest.raises(TablesideError) as failed:
            await (await opened(url)).table("t").put("a", {})  # without a retry
        assert f"through the proxy {refusing.url.removeprefix('http://')} of ALL_PROXY" in failed.value.detail
        assert "407" in failed.value.detail
        assert failed.value.applied == "no"


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("socks5://user:hidden-password@proxy.example:1080", "needs the package socksio"),
        ("ftp://user:hidden-password@proxy.example", "ALL_PROXY must be the URL of an http, https or socks5 proxy"),
        ("http://proxy.example:port", "ALL_PROXY must be the URL"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_before_the_first_request(
    client: Callable[[str], object], url: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", url)
    with pytest.raises(ValueError, match=fault) as failed:
        client("http://service.example")
    assert "ALL_PROXY" in str(failed.value)
    assert "hidden" not in str(failed.value)
