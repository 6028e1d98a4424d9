"""TLS, client certificates, renewal of certificates, and the port for probes."""

import asyncio
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from psutil import Process, wait_procs
from typer.testing import CliRunner

from servers.process import free_port
from support.certificates import Authority, Signed
from support.running import Service, running
from support.waiting import until
from tableside.cli import app

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def options(signed: Signed) -> list[str]:
    return ["--ssl-certfile", str(signed.certificate), "--ssl-keyfile", str(signed.key)]


def refused(arguments: list[str], **environment: str) -> str:
    """Return the error line of a service that refuses to start."""
    ended = CliRunner().invoke(app, ["serve", *arguments], env=environment)
    assert ended.exit_code == 2
    [line] = ended.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Service]:
    """A service with TLS and a separate port for probes."""
    directory = tmp_path_factory.mktemp("secured")
    with running(directory, probes_port=free_port(), options=options(authority.sign("server"))) as service:
        yield service


def test_clients_without_tls_get_no_response(secured: Service) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(secured.url.replace("https", "http") + "/readyz")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{secured.url}/readyz")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_versions_from_1_2_on_are_supported(
    secured: Service, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.trusting()
    context.minimum_version = context.maximum_version = version
    assert httpx.get(f"{secured.url}/livez", verify=context).status_code == 200


def test_a_client_without_a_certificate_of_the_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path / "other", "another authority")
    given = [*options(authority.sign("server")), "--ssl-ca-certs", str(authority.certificate)]
    probes = free_port()
    with running(tmp_path, probes_port=probes, options=given) as service:

        def status(context: ssl.SSLContext) -> int:
            return httpx.get(f"{service.url}/v1/tables", verify=context).status_code

        assert status(authority.trusting(authority.sign("client"))) == 200
        for context in (
            authority.trusting(),
            authority.trusting(other.sign("client")),
            authority.trusting(authority.sign("late", expired=True)),
        ):
            with pytest.raises(httpx.TransportError):
                status(context)
        assert httpx.get(f"http://127.0.0.1:{probes}/readyz").status_code == 200


def test_the_probe_port_serves_only_probes(tmp_path: Path) -> None:
    probes = free_port()
    with running(tmp_path, probes_port=probes) as service:
        with httpx.Client(base_url=f"http://127.0.0.1:{probes}") as client:
            for path in ("/livez", "/readyz", "/metrics"):
                assert client.get(path).status_code == 200
            for path in ("/v1/tables", "/v1/tables/t/records/a", "/console", "/openapi.json", "/livez/", "//livez"):
                answer = client.get(path)
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
            assert client.put("/v1/tables/t/records/a", json={}).status_code == 404
        assert httpx.get(f"{service.url}/v1/tables/t").status_code == 404  # no table was created
        assert httpx.get(f"{service.url}/readyz").status_code == 200


def served_certificate(service: Service, authority: Authority) -> bytes:
    """Return the certificate of the service, which has to be signed by the authority."""

    async def connected() -> bytes:
        port = int(service.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.trusting())
        try:
            return bytes(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        finally:
            writer.close()
            await writer.wait_closed()

    return asyncio.run(connected())


def test_new_connections_get_a_renewed_certificate_with_any_kind_of_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    signed = authority.sign("server")
    with running(tmp_path, probes_port=free_port(), options=options(signed)) as service:
        with httpx.Client(verify=authority.trusting(), base_url=service.url) as kept:
            assert kept.get("/livez").status_code == 200
            before = served_certificate(service, authority)
            authority.sign("server")
            until(lambda: served_certificate(service, authority) != before)
            assert kept.get("/livez").status_code == 200
        renewed = served_certificate(service, authority)
        signed.certificate.write_text("half of a certif")
        until(lambda: "was not renewed" in service.log.read_text())
        assert served_certificate(service, authority) == renewed
        for kind in ("RSA", "EC"):
            pem = authority.sign("server", kind=kind).certificate.read_text()
            until(lambda pem=pem: served_certificate(service, authority) == ssl.PEM_cert_to_DER_cert(pem))  # type: ignore[misc]
        metrics = httpx.get(f"{service.url}/metrics", verify=authority.trusting()).text
    expiry = re.search(r"^tableside_certificate_expiry_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
    assert expiry is not None
    assert float(expiry[1]) == x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()


def test_a_client_certificate_of_a_removed_authority_is_rejected(tmp_path: Path) -> None:
    server, before, after = (Authority(tmp_path / name, f"authority {name}") for name in ("own", "before", "after"))
    trusted = tmp_path / "authorities.pem"
    trusted.write_bytes(before.certificate.read_bytes())
    given = [*options(server.sign("server")), "--ssl-ca-certs", str(trusted)]

    def contexts(client: Signed) -> list[ssl.SSLContext]:
        made = [server.trusting(client) for _ in range(2)]
        made[0].maximum_version = ssl.TLSVersion.TLSv1_2
        return made

    with running(tmp_path, probes_port=free_port(), options=given) as service:
        old, new = contexts(before.sign("client")), contexts(after.sign("client"))
        first = [request_session(service, context) for context in old]
        for context, session in zip(old, first, strict=True):
            assert session is not None
            assert request_session(service, context, session) is not None  # so the session can be resumed
        trusted.write_bytes(after.certificate.read_bytes())
        until(lambda: all(request_session(service, context) is not None for context in new))
        for context, session in zip(old, first, strict=True):
            assert request_session(service, context) is None
            assert request_session(service, context, session) is None


MEMORY = "stores: {s: {kind: memory}}\nauto_create: true\n"


def test_a_request_in_flight_over_tls_is_answered_during_shutdown(tmp_path: Path, authority: Authority) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(MEMORY + "limits: {drain_s: 0.2}\n")
    given = options(authority.sign("server"))
    with running(tmp_path, config, probes_port=free_port(), options=given) as service:

        async def put_while_it_ends() -> bytes:
            port = int(service.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.trusting())
            writer.write(b"PUT /v1/tables/t/records/a HTTP/1.1\r\nHost: localhost\r\ncontent-length: 7\r\n\r\n")
            await writer.drain()
            os.kill(service.pid, signal.SIGTERM)
            await asyncio.sleep(0.5)
            writer.write(b'{"n":1}')
            answer = await reader.read()
            writer.close()
            return answer

        answer = asyncio.run(put_while_it_ends())
        assert re.match(rb"HTTP/1\.1 204 .*connection: close", answer, re.DOTALL)


async def test_an_idle_client_that_does_not_confirm_the_close_causes_a_short_delay(
    tmp_path: Path, authority: Authority
) -> None:
    config, given = tmp_path / "config.yaml", options(authority.sign("server"))
    config.write_text(MEMORY + "limits: {drain_s: 0, shutdown_s: 40}\n")
    with running(tmp_path, config, probes_port=free_port(), options=given) as service:
        port = int(service.url.rpartition(":")[2])
        # A blocking socket reads, and confirms the close, only during a call of `recv`.
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            authority.trusting().wrap_socket(plain, server_hostname="localhost") as idle,
        ):
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200 OK")
            process = Process(service.pid)
            process.terminate()
            ended, _ = await asyncio.to_thread(wait_procs, [process], 20)
            assert ended == [process]


def request_session(
    service: Service, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession | None:
    """Send a request, and return the TLS session of its response, or None without a response."""
    port = int(service.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answered = connection.recv(1000).startswith(b"HTTP/1.1 200")
                assert not answered or session is None or connection.session_reused
                return connection.session if answered else None
        except OSError:
            return None


def test_a_key_with_a_password_is_read_with_it(tmp_path: Path, authority: Authority) -> None:
    signed = authority.sign("locked", password="correct horse")
    given = {"options": options(signed), "probes_port": free_port()}
    secret = {"TABLESIDE_SSL_KEYFILE_PASSWORD": "correct horse"}
    with running(tmp_path, environment=secret, **given) as service:  # type: ignore[arg-type]
        assert httpx.get(f"{service.url}/livez", verify=authority.trusting()).status_code == 200
        assert "correct horse" not in service.log.read_text()
    for wrong in ({}, {"TABLESIDE_SSL_KEYFILE_PASSWORD": "wrong horse"}):
        line = refused(options(signed), **wrong)
        assert "is encrypted, and its password is missing or wrong" in line
        assert "horse" not in line


def test_invalid_certificate_files_are_reported_in_one_line(tmp_path: Path, authority: Authority) -> None:
    server, other = authority.sign("server"), authority.sign("other")
    nothing, text = tmp_path / "nothing.pem", tmp_path / "text.pem"
    text.write_text("not a certificate")
    assert "nothing.pem is not a readable file" in refused(["--ssl-certfile", str(nothing)])
    mixed = Signed(server.certificate, other.key)
    assert "the key does not belong to the certificate" in refused(options(mixed))
    for files, reason in (
        (Signed(text, server.key), f"{text} contains no certificate: it is not in PEM format"),
        (Signed(server.certificate, server.certificate), f"{server.certificate} contains no private key: only "),
    ):
        assert f"{files.certificate} and its key cannot be used: {reason}" in refused(options(files))
    for authorities in (text, server.key):
        assert f"{authorities} contains no certificate: " in refused(
            [*options(server), "--ssl-ca-certs", str(authorities)]
        )
    assert "need --ssl-certfile" in refused(["--ssl-ca-certs", str(authority.certificate)])
    assert "need --ssl-certfile" in refused(["--ssl-keyfile", str(server.key)])
