"""The state store's client with a service that uses TLS, and one that requires client certificates."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_client.secured import Site, saying_why, secured, secured_site
from spark_client.state.java import Java, java as java_process
from support.certificates import Authority, Signed
from support.running import Service

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

Result = dict[str, Any]
PUT = {"op": "put", "key": ["p", "a"], "value": {"n": 1}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("tls")) as running:
        yield running


def tried(java: Java, url: str, looks_again: str = "", **settings: str) -> Result:
    """Put a record, and return the outcome or the failure."""
    told = {"url": url, "table": "t", "deadline_s": "3", **settings}
    result: Result = java.run("TableCases", "apply", settings=told, operations=[PUT], looks_again=bool(looks_again))
    return result


def applied(java: Java, url: str, **settings: str) -> None:
    result = tried(java, url, **{"deadline_s": "30", **settings})
    assert [outcome["status"] for outcome in result.get("outcomes", [])] == [204], result


def refused(java: Java, url: str, code: str = "tls_refused", **settings: str) -> str:
    """Check that the store fails after at most one request, and return the message."""
    result = tried(java, url, **settings)
    assert (result["code"], result["status"]) == (code, 0), result
    assert (result["calls"] <= 1, result["retries"]) == (True, 0)
    return str(result["failure"])


def test_a_service_is_trusted_by_its_authority_and_a_store_by_its_certificate(
    java: Java, site: Site, tmp_path: Path
) -> None:
    of_rsa = site.authority.sign("rsa", (), kind="RSA")
    for url, pair in ((site.url, None), (site.url, site.client), (site.mutual, site.client), (site.mutual, of_rsa)):
        applied(java, url, **site.files(pair))
    both = tmp_path / "both.pem"
    both.write_bytes(site.client.key.read_bytes() + b"subject: client\n" + site.client.certificate.read_bytes())
    applied(java, site.mutual, certificate_file=str(both), **site.files())


def test_without_settings_the_environment_names_the_files(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in site.files(site.client).items():
        monkeypatch.setenv(f"TABLESIDE_{name.upper()}", value)
    with java_process(tmp_path) as java:
        applied(java, site.mutual)
        assert "none.pem" in refused(java, site.mutual, "tls_file_unusable", ca_file="none.pem")


def test_an_unsuitable_certificate_of_the_service_is_rejected_without_retries(
    java: Java, site: Site, service: Service, tmp_path: Path
) -> None:
    other = str(Authority(tmp_path, "other").certificate)
    assert "the service's certificate is refused" in refused(java, site.url)
    assert "no ca_file is given" in refused(java, site.url)
    assert other in refused(java, site.url, ca_file=other)
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    assert "localhost" in refused(java, elsewhere, **site.files()).partition("is refused")[2]
    assert "without TLS" in refused(java, service.url.replace("http", "https"))
    with secured(tmp_path / "over", site.authority.sign("over", expired=True)) as url:
        assert "NotAfter" in refused(java, url, **site.files())


@pytest.mark.parametrize("fault", ["none", "of another authority"])
def test_the_error_names_a_rejected_client_certificate(java: Java, site: Site, tmp_path: Path, fault: str) -> None:
    """The service closes the connection without an alert, as uvloop does. After an alert the store does not retry."""
    pair = None if fault == "none" else Authority(tmp_path, "other").sign("stranger", ())
    shown = "no certificate_file is given" if pair is None else f"certificate_file is {pair.certificate}"
    silent = tried(java, site.mutual, **site.files(pair))
    assert (silent["code"], silent["retries"] > 0) == ("service_unreachable", True)
    assert shown in silent["failure"]
    with saying_why(site) as url:
        told = tried(java, url, deadline_s="60", **site.files(pair))
    assert (told["code"], told["took_s"] < 30) == ("tls_refused", True), told
    assert f"({shown})" in told["failure"].partition("the service refuses the connection: ")[2]


@pytest.mark.parametrize("name", ["ca_file", "certificate_file", "key_file"])
def test_a_file_that_is_missing_or_no_certificate_is_named(java: Java, site: Site, tmp_path: Path, name: str) -> None:
    bad = tmp_path / f"{name}.pem"
    settings = site.files(site.client) | {name: str(bad)}
    assert f"the {name} {bad} cannot be read: no such file" in refused(java, site.url, "tls_file_unusable", **settings)
    bad.write_text("no certificate\n")
    assert f"the {name} {bad} cannot be used: it contains no" in refused(
        java, site.url, "tls_file_unusable", **settings
    )
    bad.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert f"the {name} {bad} cannot be used: it contains" in refused(java, site.url, "tls_file_unusable", **settings)


def test_a_key_that_does_not_match_its_certificate_is_rejected(java: Java, site: Site) -> None:
    def why(key: Path) -> str:
        return refused(java, site.url, "tls_file_unusable", **site.files(Signed(site.client.certificate, key)))

    assert "does not match the certificate" in why(site.authority.sign("second", ()).key)
    assert "does not match the certificate" in why(site.authority.sign("second rsa", (), kind="RSA").key)
    assert "a key with a passphrase" in why(site.authority.sign("locked", (), password="not supported").key)


def test_new_connections_use_the_current_certificates(java: Java, site: Site, tmp_path: Path) -> None:
    held = Signed(tmp_path / "client.pem", tmp_path / "client-key.pem")
    stranger = Authority(tmp_path, "other").sign("stranger", ())

    def copy(certificate: Signed, key: Signed) -> Result:
        shutil.copy(certificate.certificate, held.certificate)
        shutil.copy(key.key, held.key)
        return tried(java, site.mutual, looks_again="yes", **site.files(held))

    assert "may close connections this way" in copy(stranger, stranger)["failure"]
    assert "may close connections this way" in copy(site.client, stranger)["failure"]  # Half renewed
    assert copy(site.client, site.client)["outcomes"][0]["status"] == 204
