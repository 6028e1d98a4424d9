"""The deadline of a request reaches the store through every combination of policies."""

import asyncio

import pytest

from support.served import BATCH, POLICIES, RECORD, connected, served

WAIT_S = 5.0

REQUESTS = {
    "get": ("GET", RECORD, None),
    "put": ("PUT", RECORD, {}),
    "batch": ("POST", BATCH, {"operations": [{"op": "get", "key": "c"}, {"op": "put", "key": "b", "value": {}}]}),
}


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_the_deadline_of_the_caller_reaches_the_store(policy: str) -> None:
    async with served(POLICIES[policy], drain_s=0) as service, connected(service, 1) as [caller]:
        for asked, (method, path, document) in REQUESTS.items():
            service.store.untils.clear()
            before = asyncio.get_running_loop().time()
            assert (await caller.ask(method, path, document, prefer=f"wait={WAIT_S:g}")).status in (200, 204, 404)
            after = asyncio.get_running_loop().time()
            assert service.store.untils, asked
            assert all(before + WAIT_S <= until <= after + WAIT_S for until in service.store.untils), asked


async def test_a_caller_only_shortens_the_deadline_of_the_table() -> None:
    async with served({"deadline_s": WAIT_S}, drain_s=0) as service, connected(service, 1) as [caller]:
        for method, path, document in REQUESTS.values():
            assert (await caller.ask(method, path, document, prefer="wait=3600")).status in (200, 204, 404)
        assert max(service.store.untils) <= asyncio.get_running_loop().time() + WAIT_S


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_past_the_deadline_the_caller_gets_an_error_and_the_store_no_call(policy: str) -> None:
    async with served(POLICIES[policy], drain_s=0) as service, connected(service, 1) as [caller]:
        service.store.takes_s = lambda operations: 20
        answer = await caller.ask("GET", RECORD, prefer="wait=0.2")
        assert (answer.status, answer.json()["code"]) == (504, "deadline_exceeded")
        assert answer.json()["applied"] == "no"
        assert len(service.store.calls) == 1
        await service.idle()


async def test_operations_that_are_not_decoded_by_the_deadline_have_outcomes() -> None:
    operations = [{"op": "put", "key": f"k{number}", "value": {"text": "x" * 1000}} for number in range(5000)]
    async with served(drain_s=0) as service, connected(service, 1) as [caller]:
        answer = await caller.ask("POST", BATCH, {"operations": operations}, prefer="wait=0.001")
        assert answer.status == 200
        assert {result["error"]["code"] for result in answer.json()["results"]} == {"deadline_exceeded"}
        assert len(answer.json()["results"]) == len(operations)
        assert not service.store.calls
