"""The contract on Amazon's DynamoDB Local, with and without tokens."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from contract import Basics, Expiry, Orders, Preconditions, StoreContract, Time, Tokens, Updates
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
