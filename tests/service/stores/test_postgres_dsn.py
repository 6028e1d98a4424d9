"""DSNs of PostgreSQL: what is found without a connection, and the errors of a login."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from servers.postgres import postgres
from support.certificates import Authority
from support.postgres_tables import database, psql, settings
from tableside.core.errors import StoreMisconfigured, StoreUnavailable
from tableside.core.store import TableSpec

FAULTS = {
    "mysql://u:sesame@h/db": "must begin with postgresql://",
    "jdbc:postgresql://u:sesame@h/db": "must begin with postgresql://",
    "postgresql://u:sesame@x@h/db": "%40",
    "postgresql://u:sesame/x@h/db": "%2F",
    "postgresql://u:sesame?x@h/db": "%3F",
    "postgresql://u:sesame%x@h/db": "%25",
    "postgresql://u:sesame[x@h/db": "is not a URL",
    "postgresql://u:sesame@h:port/db": "has a port",
    "postgresql://h/db?sslmode=on": "invalid sslmode",
    "postgresql://h/db?sslmode=verify-full&sslrootcert=/absent.pem": "'sslrootcert'",
    "postgresql://h/db?sslmode=require&sslcert=/absent.pem": "'sslcert'",
    f"postgresql://h/db?sslmode=verify-ca&sslrootcert={__file__}": "no certificates",
    "postgresql://h/db?sslmode=verify-full": "needs the parameter 'sslrootcert'",
    "postgresql://h/db?connect_timeout=10": "connect_timeout_s",
    "postgresql://h/db?channel_binding=require": "'channel_binding'",
    "postgresql://h/db?pgbouncer=true": "'pgbouncer'",
    "postgresql://h/db?schema=public": "the store's schema",
    "postgresql://h/db?sslmode": "without a value",
}


@pytest.mark.parametrize("dsn", FAULTS)
def test_a_fault_is_found_without_a_connection(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValidationError) as raised:
        settings(dsn)
    [error] = raised.value.errors(include_input=False)
    assert FAULTS[dsn] in error["msg"]
    assert "sesame" not in error["msg"]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgres+psycopg2"])
def test_every_scheme_of_postgresql_is_accepted(scheme: str) -> None:
    given = settings(f"{scheme}://u:a%40b@h:5433/db?application_name=x&search_path=a,b\n")
    assert given.dsn.get_secret_value() == "postgresql://u:a%40b@h:5433/db?application_name=x&search_path=a,b"
    assert given.place == "h:5433/db"


RULES = """
host all postgres 127.0.0.1/32 trust
host all stranger 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose users need passwords, except the superuser."""
    with tempfile.TemporaryDirectory() as folder:  # the server's user cannot read pytest's folders
        Path(folder).chmod(0o755)
        rules = Path(folder) / "pg_hba.conf"
        rules.write_text(RULES)
        with postgres(tmp_path_factory.mktemp("postgres"), arguments=["-c", f"hba_file={rules}"]) as dsn:
            yield dsn.rpartition("@")[2].removesuffix("/postgres")


@pytest.mark.server
@pytest.mark.parametrize(
    ("login", "rest", "expected"),
    [
        ("someone:wrong-sesame", "/postgres", "the user or the password"),
        ("absent:sesame", "/postgres", "the user or the password"),
        ("group:sesame", "/postgres", "may not log in"),
        ("stranger:sesame", "/postgres", "pg_hba.conf"),
        ("someone:sesame", "/absent", "the database of the DSN does not exist"),
        ("someone:sesame", "/closed", "accepts no connections"),
        ("someone:sesame", "/private", "no permission to connect"),
        ("someone:sesame", "/postgres?nonsense=sesame", "`nonsense`"),
        ("someone:sesame", "/postgres?work_mem=sesame", "`work_mem`"),
        ("someone:sesame", "/postgres?sslmode=require", "no TLS"),
    ],
)
async def test_a_refused_login_is_explained_and_not_retriable(
    address: str, login: str, rest: str, expected: str
) -> None:
    async with psql(f"postgresql://postgres@{address}/postgres") as direct:
        if not await direct.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = 'someone'"):
            for name in ("someone LOGIN", "stranger LOGIN", '"group" NOLOGIN'):
                await direct.execute(f"CREATE ROLE {name} PASSWORD 'sesame'")
            await direct.execute("CREATE DATABASE closed ALLOW_CONNECTIONS false")
            await direct.execute("CREATE DATABASE private")
            await direct.execute("REVOKE CONNECT ON DATABASE private FROM PUBLIC")
    async with database(f"postgresql://{login}@{address}{rest}") as backend:
        for call in (backend.ping, backend.tables, lambda: backend.store(TableSpec("t"))):
            with pytest.raises(StoreMisconfigured) as raised:
                await call()
            assert expected in raised.value.detail
            assert "sesame" not in raised.value.detail
            assert (raised.value.retriable, raised.value.retry_after_s) == (False, None)


async def test_a_host_without_an_address_or_a_server_may_appear_later() -> None:
    for host, expected in (("absent.invalid", "cannot be resolved"), ("127.0.0.1:1", "ConnectionRefused")):
        async with database(f"postgresql://{host}/db") as backend:
            with pytest.raises(StoreUnavailable, match=expected) as raised:
                await backend.ping()
        assert raised.value.retriable


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """An authority whose files PostgreSQL can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Authority(Path(folder))


@pytest.mark.server
async def test_a_certificate_that_is_not_valid_is_explained(authority: Authority, tmp_path: Path) -> None:
    signed, other = authority.sign("server", hosts=("elsewhere.example",)), Authority(tmp_path, "other")
    os.chmod(signed.key, 0o600)
    if os.geteuid() == 0:
        shutil.chown(signed.key, "postgres")
    files = f"ssl_cert_file={signed.certificate}", f"ssl_key_file={signed.key}"
    with postgres(tmp_path, arguments=["-c", "ssl=on", "-c", files[0], "-c", files[1]]) as dsn:
        async with database(f"{dsn}?sslmode=verify-ca&sslrootcert={authority.certificate}") as backend:
            await backend.ping()
        for mode, root in (("verify-full", authority), ("verify-ca", other)):
            async with database(f"{dsn}?sslmode={mode}&sslrootcert={root.certificate}") as backend:
                with pytest.raises(StoreMisconfigured, match="certificate is not valid"):
                    await backend.ping()
