"""One aioboto3 client for DynamoDB, opened when it is first needed: bounded calls, and its errors in our words.

An error says whether a write may have happened. Nothing is repeated here, and the driver's own repetition is off.
Knows nothing of tables, records or items.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, TypeAlias

import aioboto3
import aiohttp
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from aiobotocore.session import AioSession
from botocore import exceptions
from pydantic import BaseModel, Field

from ...core import (
    Applied,
    Connections,
    Contended,
    DeadlineExceeded,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
)

log = logging.getLogger(__name__)

Answer: TypeAlias = dict[str, Any]

_THROTTLED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_ALWAYS_UNSENT = (
    exceptions.ConnectTimeoutError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
    exceptions.ProxyConnectionError,
    exceptions.SSLError,
)
_MISCONFIGURED = (
    exceptions.ConfigNotFound,
    exceptions.ConfigParseError,
    exceptions.NoRegionError,
    exceptions.ProfileNotFound,
)


class DynamodbSettings(BaseModel, frozen=True, extra="forbid"):
    """Which DynamoDB, as whom, and within which bounds; times in seconds.

    What is None is looked for where every tool of AWS looks: the environment, the shared files, the machine.
    """

    region: str | None = Field(default=None, min_length=1)
    endpoint_url: str | None = Field(default=None, pattern="^https?://")
    profile: str | None = Field(default=None, min_length=1)
    connections_max: int = Field(default=64, ge=1, le=1000)
    connect_timeout_s: float = Field(default=2.0, gt=0, le=60)
    read_timeout_s: float = Field(default=10.0, gt=0, le=300)


class ConditionFailed(Exception):
    """A conditional write was not done; `item_told` says that the answer shows the item that is there instead."""

    def __init__(self, *, item_told: bool) -> None:
        super().__init__("the condition does not hold")
        self.item_told = item_told


class AlreadyThere(Exception):
    """What was to be made is being made, or there already."""


class Client:
    """Calls DynamoDB, so many at once, each until a time."""

    def __init__(self, settings: DynamodbSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.connections_max)
        self._calls = 0
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._client: Any = None
        self._closed = False

    async def call(
        self, verb: str, parameters: Mapping[str, Any], until: float = math.inf, *, writes: bool = False
    ) -> Answer:
        """Return DynamoDB's answer, its attributes as they stand on the wire (binary is base64 text).

        Raise ConditionFailed, AlreadyThere or a TableError.
        """
        sent = False
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                client = self._client or await self._open()
                async with self._slots:
                    if asyncio.get_running_loop().time() >= until:
                        raise TimeoutError
                    sent = True
                    self._calls += 1
                    try:
                        return await self._called(client, verb, parameters, writes=writes)
                    finally:
                        self._calls -= 1
        except TimeoutError:
            applied: Applied = "unknown" if writes and sent else "no"
            raise DeadlineExceeded(f"the deadline was over before DynamoDB answered {verb}", applied=applied) from None

    async def ping(self) -> None:
        """Return if DynamoDB answers, be it that it refuses us. Raise StoreUnavailable if not."""
        try:
            # Beside the other calls: that all of them wait says nothing of whether DynamoDB can be reached.
            await self._called(self._client or await self._open(), "list_tables", {"Limit": 1}, writes=False)
        except StoreUnavailable as error:
            refusal = error.__cause__
            if not isinstance(refusal, exceptions.ClientError) or _status(refusal) >= 500:
                raise
        except InvalidOperation as error:
            raise StoreUnavailable(error.detail) from error
        except Throttled:
            return

    def connections(self) -> Connections:
        """Return how many connections calls use; how many rest beside them only the driver knows."""
        return Connections(self._calls, self._calls, self._settings.connections_max)

    async def close(self) -> None:
        """Close every connection; a second call does nothing."""
        async with self._opening:
            self._closed = True
            self._client = None
            await self._opened.aclose()

    async def _called(self, client: Any, verb: str, parameters: Mapping[str, Any], *, writes: bool) -> Answer:
        try:
            _BODY.set(orjson.dumps(parameters))
            # The library itself looks only at what may decide where to send it.
            answer: Answer = await getattr(client, verb)(
                **({"RequestItems": {}} if "RequestItems" in parameters else {})
            )
        except exceptions.ClientError as error:
            raise _refusal(error, verb, writes) from error
        except (exceptions.BotoCoreError, aiohttp.ClientError, ValueError, KeyError) as error:
            # The last two are an answer that is no DynamoDB's.
            unknown: Applied = "unknown" if writes and not _unsent(error) else "no"
            raise StoreUnavailable(f"DynamoDB: {verb}: {_kind(error)}", applied=unknown) from error
        return answer

    async def _open(self) -> Any:
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the connection to DynamoDB is closed")
            if self._client is None:
                try:
                    self._client = await self._new()
                except _MISCONFIGURED as error:
                    raise InvalidOperation(f"DynamoDB cannot be set up: {error}") from error
                except exceptions.BotoCoreError as error:
                    raise StoreUnavailable(f"DynamoDB: {_kind(error)}") from error
            return self._client

    async def _new(self) -> Any:
        """Return a client. Without credentials there is none, so that they are looked for again the next time."""
        settings, session = self._settings, AioSession(profile=self._settings.profile)
        session.register_component("response_parser_factory", _PlainFactory())
        if await session.get_credentials() is None:
            raise exceptions.NoCredentialsError
        config = AioConfig(
            max_pool_connections=settings.connections_max + 1,  # one to ask whether it can be reached
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            parameter_validation=False,
        )
        made = aioboto3.Session(botocore_session=session, region_name=settings.region).client(
            "dynamodb", endpoint_url=settings.endpoint_url, config=config
        )
        client = await self._opened.enter_async_context(made)
        client.meta.events.register("before-call.dynamodb", _with_body)
        return client


_BODY: ContextVar[bytes] = ContextVar("body")
"""What the call that this task makes is to say: a request is written in one step, as an answer is read in one."""


def _with_body(params: dict[str, Any], **_: Any) -> None:
    params["body"] = _BODY.get()


class _PlainFactory(AioResponseParserFactory):
    """Reads DynamoDB's answers in one step. Going through each by its description takes several times as long."""

    def create_parser(self, protocol_name: str) -> Any:
        return _PlainParser() if protocol_name == "json" else super().create_parser(protocol_name)


class _PlainParser(AioJSONParser):
    def _handle_json_body(self, raw_body: bytes, shape: Any) -> Any:
        answer = orjson.loads(raw_body)
        if not isinstance(answer, dict):
            raise ValueError("the answer is no JSON object")
        return answer


def _refusal(error: exceptions.ClientError, verb: str, writes: bool) -> Exception:
    """Return what an error means that DynamoDB itself answered."""
    code, message = str(error.response["Error"].get("Code")), str(error.response["Error"].get("Message"))
    if code in _THROTTLED:
        return Throttled(f"DynamoDB: {verb}: {code}")
    match code:
        case "ConditionalCheckFailedException":
            return ConditionFailed(item_told="Item" in error.response)
        case "ResourceInUseException":
            return AlreadyThere(code)
        case "ResourceNotFoundException":
            return TableNotFound("DynamoDB has no such table")
        case "TransactionConflictException" | "ReplicatedWriteConflictException":
            return Contended(f"DynamoDB: {verb}: {code}")
        case "ItemCollectionSizeLimitExceededException":
            return TooLarge("DynamoDB: the partition has reached its limit of 10 GB")
        case "ValidationException" | "SerializationException":
            return _invalid(message, verb)
    unknown: Applied = "unknown" if writes and _status(error) >= 500 else "no"
    return StoreUnavailable(f"DynamoDB: {verb}: {code}", applied=unknown)


def _status(error: exceptions.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


def _invalid(message: str, verb: str) -> TableError:
    """Say nothing of DynamoDB's message, in which values may stand."""
    if "Item size" in message:
        return TooLarge("DynamoDB: an item may have 400 KB")
    return InvalidOperation(f"DynamoDB refuses {verb}: a value, key or option is none that this table takes")


def _unsent(error: Exception) -> bool:
    """Whether a request surely did not reach DynamoDB."""
    if isinstance(error, exceptions.EndpointConnectionError):
        return isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError)
    return isinstance(error, _ALWAYS_UNSENT)


def _kind(error: Exception) -> str:
    """Say what went wrong without the driver's text, which names hosts and whatever a server answered."""
    return type(error).__name__
