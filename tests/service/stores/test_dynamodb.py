"""The DynamoDB store on Amazon's DynamoDB Local and on dynalite: the whole contract."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dynamodb_tables import fresh_store
from store_contract import StoreContract, Time
from tableside.store import Store, TableSpec
from tableside.stores.dynamodb.client import Client


class TestDynamodbLocal(StoreContract):
    key_parts_max = 2
    client: Client

    @pytest.fixture(autouse=True)
    def server(self, dynamodb_client: Client) -> None:
        self.client = dynamodb_client

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return fresh_store(self.client, spec, time.now_ms)


class TestWithoutTokens(TestDynamodbLocal):
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return fresh_store(self.client, spec, time.now_ms, tokens=False)


# Dynalite holds no list and no object to be equal to itself, so it takes none of the writes whose condition says so.
NOT_ON_DYNALITE = {
    "test_a_merge_patch_and_every_operator",
    "test_a_number_equal_to_an_integer_is_that_integer",
    "test_every_write_changes_the_etag",
    "test_first_updates_at_the_same_time_use_the_default_once",
}


class TestDynalite(TestDynamodbLocal):
    @pytest.fixture(autouse=True)
    def server(self, dynalite_client: Client, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in NOT_ON_DYNALITE:
            pytest.skip("dynalite compares no lists and no objects")
        self.client = dynalite_client
