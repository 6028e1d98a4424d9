"""The client, the command line and Spark with a service that uses TLS, and one that requires client certificates."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_client.secured import Site, saying_why, secured_site
from support.certificates import Authority, Signed
from support.running import Service
from tableside_client import Client
from tableside_client.errors import TLS_REFUSED, UNREACHABLE
from tableside_client.retries import Retries
from tableside_client.tls import TlsFileError
from tableside_spark import Table, TableError, register

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.server]

ATTEMPTS = 4
QUICK = Retries(attempts_max=ATTEMPTS, first_s=0.001, longest_s=0.002, total_s=10.0)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("tls")) as running:
        yield running


def refused(url: str, **options: Any) -> TableError:
    """Check that requests fail without a retry, and return the error."""
    with Client(url, retries=QUICK, **options) as client:
        with pytest.raises(TableError) as refusal:
            client.table("t").record("a")
        assert client.waited_s == 0
        with pytest.raises(TableError, match=TLS_REFUSED):
            client.arrow_table("t").batch(pa.table({"key": ["a"]}), op="get")
    assert (refusal.value.code, refusal.value.retriable, refusal.value.applied) == (TLS_REFUSED, False, "no")
    return refusal.value


def test_a_service_is_trusted_by_its_authority_and_a_client_by_its_certificate(site: Site) -> None:
    for url, pair in ((site.url, None), (site.url, site.client), (site.mutual, site.client)):
        with Client(url, **site.files(pair)) as client:
            client.table("t").put("a", {"n": 1})
            assert client.table("t").record("a").value == {"n": 1}


def test_without_options_the_environment_names_the_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in site.files(site.client).items():
        monkeypatch.setenv(f"TABLESIDE_{name.upper()}", value)
    with Client(site.mutual) as client:
        client.table("t").put("e", {"n": 1})
    with pytest.raises(TlsFileError, match=r"none\.pem"):
        Client(site.mutual, ca_file="none.pem")


def test_an_unsuitable_certificate_of_the_service_is_rejected_without_retries(
    site: Site, service: Service, tmp_path: Path
) -> None:
    other = str(Authority(tmp_path, "other").certificate)
    assert "unable to get local issuer certificate" in refused(site.url).detail
    assert "no ca_file is given" in refused(site.url).detail
    assert other in refused(site.url, ca_file=other).detail
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    assert "certificate is not valid for 'localhost'" in refused(elsewhere, **site.files()).detail
    assert "without TLS" in refused(service.url.replace("http", "https")).detail


@pytest.mark.parametrize("fault", ["certificate required", "certificate expired"])
def test_the_error_names_the_rejected_certificate_of_a_client(site: Site, fault: str) -> None:
    """The service closes the connection without an alert, as uvloop does. After an alert the client does not retry."""
    pair = site.authority.sign("late", (), expired=True) if fault == "certificate expired" else None
    shown = f"certificate_file is {pair.certificate}" if pair else "no certificate_file is given"
    with Client(site.mutual, retries=QUICK, **site.files(pair)) as client:
        with pytest.raises(TableError, match=UNREACHABLE) as refusal:
            client.table("t").record("a")
        assert client.waited_s > 0
    assert shown in refusal.value.detail
    with saying_why(site) as url, Client(url, retries=QUICK, **site.files(pair)) as client:
        with pytest.raises(TableError, match=TLS_REFUSED) as refusal:
            client.table("t").record("a")
        assert client.waited_s == 0
    assert f"{fault} ({shown})" in refusal.value.detail
    assert (refusal.value.retriable, refusal.value.applied) == (False, "no")


@pytest.mark.parametrize("name", ["ca_file", "certificate_file", "key_file"])
def test_a_file_that_is_missing_or_no_certificate_is_named(site: Site, tmp_path: Path, name: str) -> None:
    bad = tmp_path / f"{name}.pem"
    options = site.files(site.client) | {name: str(bad)}
    with pytest.raises(TlsFileError, match=f"the {name} .*{bad.name} cannot be read: No such file"):
        Client(site.url, **options)
    bad.write_text("no certificate\n")
    with pytest.raises(TlsFileError, match=f"the {name} .*{bad.name}.* cannot be used"):
        Client(site.url, **options)


def test_a_key_that_is_another_certificates_or_has_a_passphrase_is_refused(site: Site) -> None:
    other, locked = site.authority.sign("second", ()), site.authority.sign("locked", (), password="not supported")
    with pytest.raises(TlsFileError, match="key values mismatch"):
        Client(site.url, **site.files(Signed(site.client.certificate, other.key)))
    with pytest.raises(TlsFileError, match="a key with a passphrase is not supported"):
        Client(site.url, **site.files(locked))


def test_files_of_certificates_are_refused_for_an_address_without_tls_and_a_key_without_its_certificate() -> None:
    for make in (Client, partial(Table, "t")):
        with pytest.raises(ValueError, match="https://"):
            make("http://127.0.0.1:9", ca_file="ca.pem")
        with pytest.raises(ValueError, match="key_file requires certificate_file"):
            make("https://127.0.0.1:9", key_file="key.pem")


def test_a_new_connection_uses_the_current_certificates(site: Site, tmp_path: Path) -> None:
    held = Signed(tmp_path / "client.pem", tmp_path / "client-key.pem")
    stranger = Authority(tmp_path, "other").sign("stranger", ())
    copy(stranger, held)
    with Client(site.mutual, retries=QUICK, **site.files(held)) as client:
        with pytest.raises(TableError, match="may close connections like this"):
            client.table("t").put("r", {"n": 1})
        shutil.copy(site.client.certificate, held.certificate)  # Half renewed: the key belongs to the other one.
        with pytest.raises(TableError, match="may close connections like this"):
            client.table("t").put("r", {"n": 1})
        copy(site.client, held)
        client.table("t").put("r", {"n": 2})
        assert client.table("t").record("r").value == {"n": 2}


def copy(source: Signed, target: Signed) -> None:
    shutil.copy(source.certificate, target.certificate)
    shutil.copy(source.key, target.key)


def test_the_command_line_accepts_the_files_as_options_and_variables(site: Site, tmp_path: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in site.files(site.client).items()]
    assert tableside("put", "cli", "a", '{"n": 1}', "--url", site.mutual, *options).returncode == 0
    named = {f"TABLESIDE_{name.upper()}": value for name, value in site.files(site.client).items()}
    assert tableside("get", "cli", "a", "--url", site.mutual, **named).stdout == '{"n": 1}\n'
    rows = tmp_path / "rows.csv"
    rows.write_text("k,n\nb,2\n")
    assert tableside("load", "cli", str(rows), "--key", "k", "--url", site.mutual, *options).returncode == 0
    refusal = tableside("get", "cli", "a", "--url", site.mutual)
    assert (refusal.returncode, TLS_REFUSED in refusal.stderr) == (1, True), refusal.stderr
    assert "Traceback" not in refusal.stderr


def tableside(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tableside", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.jvm
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_executors_use_the_files_that_the_table_and_the_format_name(spark: SparkSession, site: Site) -> None:
    options = site.files(site.client)
    numbers = spark.range(20).selectExpr("cast(id as string) k", "id n")
    table = Table("spark", site.mutual, **options)
    assert table.put(numbers, "k").applied == 20
    assert table.join(numbers.select("k"), "k", "n long").selectExpr("sum(n)").collect()[0][0] == 190
    register(spark)
    told = {"url": site.mutual, "table": "format", **options}
    numbers.write.format("tableside").options(**told, key="k").mode("append").save()
    assert spark.read.format("tableside").options(**told).load().count() == 20


@pytest.mark.jvm
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_executor_that_lacks_a_file_names_it(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    gone = tmp_path / "ca.pem"
    shutil.copy(site.authority.certificate, gone)
    with Client(site.url, ca_file=str(site.authority.certificate)) as client:
        client.table("gone").put("0", {"n": 1})
    table = Table("gone", site.url, ca_file=str(gone))
    joined = table.join(spark.range(3).selectExpr("cast(id as string) k"), "k", "n long")
    gone.unlink()
    with pytest.raises(Exception, match=r"the ca_file .*ca\.pem cannot be read: No such file"):
        joined.collect()
