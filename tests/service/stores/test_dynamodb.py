"""The contract on Amazon's DynamoDB Local, on dynalite, and without tokens, and random batches."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings as hypothesis_settings
from hypothesis.stateful import initialize, run_state_machine_as_test

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
from service.test_stateful import Machine
from support.dynamodb_tables import fresh_store, settings
from support.naive import Naive
from tableside.catalog.table import Table
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


class DynamodbMachine(Machine):
    """The state machine on DynamoDB Local."""

    url = ""

    @initialize(ttl_s=st.sampled_from([None, 50.0]))
    def start(self, ttl_s: float | None) -> None:
        self.naive, self.spec, self.opened_ones = Naive(ttl_s), TableSpec("t", ttl_s=ttl_s), AsyncExitStack()
        client = Client(settings(self.url))
        self.opened_ones.push_async_callback(client.close)
        opening = self.opened_ones.enter_async_context(fresh_store(client, self.spec, lambda: self.now))
        self.table = Table(self.run(opening))

    def teardown(self) -> None:
        if hasattr(self, "opened_ones"):
            self.run(self.opened_ones.aclose())
        super().teardown()


@pytest.mark.usefixtures("aws_credentials")
def test_it_equals_the_naive_table(dynamodb_url: str, full: bool) -> None:
    DynamodbMachine.url = dynamodb_url
    few = hypothesis_settings(
        max_examples=12 if full else 3, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(DynamodbMachine, settings=few)
