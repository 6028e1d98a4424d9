"""TLS of both clients. `spark_client/test_tls.py` has the messages and files in detail."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_client.secured import Site, secured_site
from support.certificates import Authority
from tableside_client import Retries, TablesideError

pytestmark = pytest.mark.server

ONCE = Retries(attempts_max=1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("tls")) as running:
        yield running


async def test_a_certificate_of_a_known_authority_is_accepted(opened: Callable[..., Any], site: Site) -> None:
    table = (await opened(site.mutual, **site.files(site.client))).table("t")
    large = {"text": "x" * 900_000}
    await table.put("a", large)
    assert await table.get("a") == large


async def test_the_reason_of_a_rejected_certificate_is_an_error(
    opened: Callable[..., Any], site: Site, tmp_path: Any
) -> None:
    other = {"ca_file": str(Authority(tmp_path, "other").certificate)}
    by_name = site.url.replace("127.0.0.1", "localhost")
    for url, options, message in (
        (site.url, other, "unable to get local issuer certificate"),
        (by_name, site.files(), "certificate is not valid for 'localhost'"),
        (site.mutual, site.files(), "no certificate_file is given"),
    ):
        with pytest.raises(TablesideError, match=message) as failed:
            await (await opened(url, retries=ONCE, **options)).table("t").put("a", {})
        assert failed.value.code in ("tls_refused", "service_unreachable")
