"""How the DynamoDB store finds and creates tables, and its errors for tables that contradict the configuration."""

import asyncio
import ssl
import time as wall
from pathlib import Path
from typing import Any

import pytest

from contract import COMPOSITE, INTEGERS, THREE_PARTS, put, value, written
from servers.process import HOST, free_port
from support.certificates import Authority
from support.dynamodb_tables import a_name, fresh_table, get_item, make, opened, settings
from tableside.core.errors import (
    InvalidOperation,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Unsupported,
)
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Get
from tableside.core.store import TableSpec
from tableside.stores.dynamodb.backend import DynamodbBackend, DynamodbTableOptions
from tableside.stores.dynamodb.client import Client, DynamodbSettings


@pytest.fixture
async def backend(dynamodb_client: Client) -> DynamodbBackend:
    return DynamodbBackend(dynamodb_client, lambda: wall.time_ns() // 1_000_000)


async def described(client: Client, name: str) -> dict[str, Any]:
    answer = await client.call("describe_table", {"TableName": name})
    table: dict[str, Any] = answer["Table"]
    return table


async def test_a_created_table_deletes_expired_items(dynamodb_client: Client, backend: DynamodbBackend) -> None:
    name = a_name()
    store = await backend.store(TableSpec("t", stored_as=name, create=True))
    table = await described(dynamodb_client, name)
    assert table["KeySchema"] == [{"AttributeName": "_ts_key", "KeyType": "HASH"}]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    ttl = await dynamodb_client.call("describe_time_to_live", {"TableName": name})
    assert ttl["TimeToLiveDescription"]["AttributeName"] == "_ts_expires"
    assert ttl["TimeToLiveDescription"]["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
    assert store.spec.key == KeySchema()
    await written(store, put("a", {"_key": 1}))
    again = await backend.store(TableSpec("t", stored_as=name))
    assert again.spec.key == KeySchema()
    assert await value(again, "a") == {"_key": 1}
    assert name in await backend.tables()


async def test_only_an_endpoint_on_another_machine_is_reached_through_a_proxy(
    aws_credentials: None, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    local, other = Client(settings(dynamodb_url)), Client(settings("http://dynamodb.example:8000"))
    await local.ping()
    with pytest.raises(StoreUnavailable, match="the proxy of HTTP_PROXY or HTTPS_PROXY"):
        await other.ping()
    for client in (local, other):
        await client.close()


async def test_a_table_is_created_with_its_named_keys(dynamodb_client: Client, backend: DynamodbBackend) -> None:
    name = a_name()
    store = await backend.store(TableSpec("t", COMPOSITE, stored_as=name, key_given=True, create=True))
    assert (await described(dynamodb_client, name))["KeySchema"] == [
        {"AttributeName": "user", "KeyType": "HASH"},
        {"AttributeName": "day", "KeyType": "RANGE"},
    ]
    await written(store, put(("u", 5), {"n": 1}))
    item = await get_item(dynamodb_client, name, {"user": {"S": "u"}, "day": {"N": "5"}})
    assert item["n"] == {"N": "1"}
    assert name not in await backend.tables()


async def test_concurrent_replicas_create_one_table(dynamodb_client: Client, backend: DynamodbBackend) -> None:
    name = a_name()
    stores = await asyncio.gather(*(backend.store(TableSpec("t", stored_as=name, create=True)) for _ in range(8)))
    await written(stores[0], put("a", {"n": 1}))
    assert await value(stores[7], "a") == {"n": 1}


async def test_the_key_follows_the_existing_table(dynamodb_client: Client) -> None:
    for keys, schema in (
        ({"tail": "S"}, KeySchema((KeyField("tail", "string"),))),
        ({"n": "N"}, KeySchema((KeyField("n", "integer"),))),
        ({"u": "S", "d": "N"}, KeySchema((KeyField("u", "string"), KeyField("d", "integer")))),
    ):
        async with fresh_table(dynamodb_client, keys) as name:
            assert (await opened(dynamodb_client, name)).spec.key == schema
            assert (await opened(dynamodb_client, name, key=schema, key_given=True)).spec.key == schema


@pytest.mark.parametrize(
    ("keys", "asked", "kind"),
    [
        ({"id": "S"}, {"key": INTEGERS, "key_given": True}, InvalidOperation),
        ({"id": "N", "more": "S"}, {"key": INTEGERS, "key_given": True}, InvalidOperation),
        ({"id": "N"}, {"key": THREE_PARTS, "key_given": True}, Unsupported),
        ({"id": "B"}, {}, Unsupported),
        ({"id": "S"}, {"options": DynamodbTableOptions(ttl_attribute="id")}, InvalidOperation),
    ],
    ids=str,
)
async def test_a_table_that_contradicts_the_configuration_is_rejected(
    dynamodb_client: Client, keys: dict[str, str], asked: dict[str, Any], kind: type[TableError]
) -> None:
    async with fresh_table(dynamodb_client, keys) as name:
        with pytest.raises(kind) as refusal:
            await opened(dynamodb_client, name, **asked)
        assert name in refusal.value.detail


async def test_a_table_that_expires_by_another_attribute_is_refused(dynamodb_client: Client) -> None:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        how = {"Enabled": True, "AttributeName": "gone_at"}
        await dynamodb_client.call("update_time_to_live", {"TableName": name, "TimeToLiveSpecification": how})
        with pytest.raises(InvalidOperation, match="gone_at"):
            await opened(dynamodb_client, name)
        await opened(dynamodb_client, name, options=DynamodbTableOptions(ttl_attribute="gone_at"))


@pytest.mark.parametrize(("name", "kind"), [("ab", InvalidOperation), ("no-such-table", TableNotFound)])
async def test_an_absent_table_is_not_found(backend: DynamodbBackend, name: str, kind: type[TableError]) -> None:
    with pytest.raises(kind):
        await backend.store(TableSpec("t", stored_as=name))


async def test_a_deleted_table_is_not_found(dynamodb_client: Client) -> None:
    name = a_name()
    await make(dynamodb_client, name, {"id": "S"})
    store = await opened(dynamodb_client, name)
    await dynamodb_client.call("delete_table", {"TableName": name})
    for outcome in await store.apply([Get("a"), put("b"), put("c", {}, if_absent=True)]):
        assert isinstance(outcome, TableNotFound)
        assert outcome.applied == "no"
    assert {type(one) for one in await store.apply([put(f"{index}") for index in range(9)])} == {TableNotFound}


# The address of DynamoDB, and whether it can be reached


KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "secret"}

PROFILES = """
[profile command]
credential_process = /absent
[profile circle]
role_arn = arn:aws:iam::1:role/x
source_profile = circle
"""


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A monkeypatch for an environment without credentials and without a region, but with some profiles."""
    (tmp_path / "config").write_text(PROFILES)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no AWS credentials"),
        ({**KEYS, "AWS_DEFAULT_REGION": ""}, "there is no region"),
        ({**KEYS, "AWS_ENDPOINT_URL": "localhost:8000"}, "Invalid endpoint"),
        ({"AWS_ACCESS_KEY_ID": "secret"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ROLE_ARN": "arn:aws:iam::1:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE": "/absent"}, "/absent"),
        ({"AWS_PROFILE": "command"}, "/absent"),
        ({**KEYS, "AWS_CA_BUNDLE": "/absent"}, "AWS_CA_BUNDLE"),
        ({**KEYS, "AWS_REGION": "eu_west_1"}, "eu_west_1"),
        ({"AWS_PROFILE": "circle"}, "circle"),
    ],
)
async def test_what_is_wrong_with_the_environment_is_named_and_not_retriable(
    aws_credentials: None, no_credentials: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    for name, text in {"AWS_DEFAULT_REGION": "eu-west-1", **variables}.items():
        if text:
            no_credentials.setenv(name, text)
    endpoint = None if "AWS_ENDPOINT_URL" in variables else f"https://{HOST}:{free_port()}"
    backend = await DynamodbBackend.open(DynamodbSettings(endpoint_url=endpoint))
    with pytest.raises((StoreMisconfigured, InvalidOperation)) as opening:
        await backend.store(TableSpec("t-t"))
    with pytest.raises(StoreMisconfigured) as ping:
        await backend.ping()
    await backend.close()
    for error in (opening.value, ping.value):
        assert words in error.detail
        assert "secret" not in error.detail
        assert (error.retriable, error.applied) == (False, "no")


async def test_an_endpoint_without_tls_or_with_an_unknown_authority_is_named(
    aws_credentials: None, no_credentials: pytest.MonkeyPatch, dynamodb_url: str, tmp_path: Path
) -> None:
    for name, text in KEYS.items():
        no_credentials.setenv(name, text)
    backend = await DynamodbBackend.open(settings(dynamodb_url.replace("http://", "https://")))
    with pytest.raises(StoreMisconfigured, match="does not accept TLS"):
        await backend.ping()
    await backend.close()
    signed = Authority(tmp_path).sign("dynamodb")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(signed.certificate, signed.key)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        backend = await DynamodbBackend.open(settings(f"https://{HOST}:{port}"))
        with pytest.raises(StoreMisconfigured, match="certificate of DynamoDB is not accepted"):
            await backend.ping()
        await backend.close()
