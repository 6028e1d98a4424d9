"""The contract on Amazon's DynamoDB Local, on dynalite, and without tokens."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from contract import (
    Basics,
    Expiry,
    KeysAndValues,
    Orders,
    Preconditions,
    Scans,
    StoreContract,
    Time,
    Tokens,
    Updates,
)
from contract.opening import Opens
from support.dynamodb_tables import fresh_store
from tableside.core.store import Store, TableSpec
from tableside.stores.dynamodb.client import Client


class Local(Opens):
    key_parts_max = 2
    client: Client

    @pytest.fixture(autouse=True)
    def server(self, dynamodb_client: Client) -> None:
        self.client = dynamodb_client

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return fresh_store(self.client, spec, time.now_ms)


class TestDynamodbLocal(Local, StoreContract):
    """The complete contract."""


class WithoutTokens(Local):
    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return fresh_store(self.client, spec, time.now_ms, tokens=False)


class TestWithoutTokens(WithoutTokens, Updates, Preconditions):
    """Writes have other conditions if the table keeps no tokens."""

    test_a_store_without_tokens_rejects_them = Tokens.test_a_store_without_tokens_rejects_them
    test_a_store_without_tokens_rejects_orders = Orders.test_a_store_without_tokens_rejects_orders


@pytest.mark.daily
class TestTheRestWithoutTokens(WithoutTokens, Basics, Expiry):
    """Features that are the same with and without tokens."""


# In dynalite no list and no object equals itself, so it rejects every write whose condition compares them.
NOT_ON_DYNALITE = {
    "test_a_merge_patch_and_every_operator",
    "test_operators_of_recent_lists_and_first_writes",
    "test_a_number_equal_to_an_integer_is_that_integer",
    "test_every_write_changes_the_etag",
    "test_concurrent_first_updates_use_the_default_once",
    "test_members_may_have_names_that_begin_with_a_dollar",
    "test_every_sequence_of_writes_leaves_the_same_record[objects and nulls are set whole]",
    "test_a_write_without_an_order_stays_until_one_that_is_not_older",
}


class Dynalite(Local):
    @pytest.fixture(autouse=True)
    def server(self, dynalite_client: Client, request: pytest.FixtureRequest) -> None:
        if NOT_ON_DYNALITE & {request.function.__name__, request.node.name}:
            pytest.skip("dynalite compares no lists and no objects")
        self.client = dynalite_client


@pytest.mark.daily
class TestDynalite(Dynalite, Updates, Preconditions):
    """Another implementation of DynamoDB's expressions and conditions."""


@pytest.mark.full
class TestTheRestOnDynalite(Dynalite, Basics, KeysAndValues, Expiry, Tokens, Orders, Scans):
    """Features that are the same on both servers."""
