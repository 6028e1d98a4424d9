"""One aioboto3 client for DynamoDB, opened on first use. Limits concurrent calls and translates errors.

An error states whether a write may have been applied. This module does not retry, and turns the driver's retries off.
"""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Annotated, Any, TypeAlias

import aioboto3
import aiohttp
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from aiobotocore.session import AioSession
from botocore import exceptions
from pydantic import AfterValidator, BaseModel, Field

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
    checked_url,
    environment_proxy,
    url_place,
)

log = logging.getLogger(__name__)

Response: TypeAlias = dict[str, Any]

_THROTTLING_CODES = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_NEVER_SENT = (
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
    """The region, endpoint, credentials profile and limits. Times are in seconds.

    Values that are None come from the places that all AWS tools use: environment, shared files, instance metadata.
    """

    region: str | None = Field(default=None, min_length=1)
    endpoint_url: Annotated[str, Field(pattern="^https?://"), AfterValidator(checked_url)] | None = None
    profile: str | None = Field(default=None, min_length=1)
    connections_max: int = Field(default=64, ge=1, le=1000)
    connect_timeout_s: float = Field(default=2.0, gt=0, le=60)
    read_timeout_s: float = Field(default=10.0, gt=0, le=300)

    @property
    def place(self) -> str:
        """Return the endpoint or the region."""
        region = f"region {self.region}" if self.region else "the region of the environment"
        return region if self.endpoint_url is None else url_place(self.endpoint_url)


class ConditionFailed(Exception):
    """The condition of a write was false. `item_returned` states whether the response contains the existing item."""

    def __init__(self, *, item_returned: bool) -> None:
        super().__init__("the condition was false")
        self.item_returned = item_returned


class ResourceInUse(Exception):
    """The resource to create exists already or is being created."""


class Client:
    """Calls DynamoDB with limited concurrency and a deadline for each call."""

    def __init__(self, settings: DynamodbSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.connections_max)
        self._calls = 0
        self._opening = asyncio.Lock()
        self._resources = AsyncExitStack()
        self._client: Any = None
        self._closed = False

    async def call(
        self, verb: str, parameters: Mapping[str, Any], until: float = math.inf, *, writes: bool = False
    ) -> Response:
        """Return DynamoDB's response, with attributes in their wire format (binary is base64 text).

        Raise ConditionFailed, ResourceInUse or a TableError.
        """
        sent = False
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                client = self._client or await self._open()
                async with self._slots:
                    if time.monotonic() >= until:
                        raise TimeoutError
                    sent = True
                    self._calls += 1
                    try:
                        return await self._send(client, verb, parameters, writes=writes)
                    finally:
                        self._calls -= 1
        except TimeoutError:
            applied: Applied = "unknown" if writes and sent else "no"
            raise DeadlineExceeded(
                f"the deadline was exceeded before DynamoDB responded to {verb}", applied=applied
            ) from None

    async def ping(self) -> None:
        """Raise StoreUnavailable if DynamoDB cannot be reached. A rejected request shows that it can."""
        try:
            # Outside the call limit: waiting calls do not mean that DynamoDB is unreachable.
            await self._send(self._client or await self._open(), "list_tables", {"Limit": 1}, writes=False)
        except StoreUnavailable as error:
            response = error.__cause__
            if not isinstance(response, exceptions.ClientError) or _status(response) >= 500:
                raise
        except InvalidOperation as error:
            raise StoreUnavailable(error.detail) from error
        except Throttled:
            return

    def connections(self) -> Connections:
        """Return the number of connections in use. The driver does not report idle ones."""
        return Connections(self._calls, self._calls, self._settings.connections_max)

    async def close(self) -> None:
        """Close all connections. Further calls do nothing."""
        async with self._opening:
            self._closed = True
            self._client = None
            await self._resources.aclose()

    async def _send(self, client: Any, verb: str, parameters: Mapping[str, Any], *, writes: bool) -> Response:
        try:
            _BODY.set(orjson.dumps(parameters))
            # The driver itself reads only the parameters that may affect the endpoint. `_set_body` sends the rest.
            response: Response = await getattr(client, verb)(
                **({"RequestItems": {}} if "RequestItems" in parameters else {})
            )
        except exceptions.ClientError as error:
            raise _translate_error(error, verb, writes) from error
        except (exceptions.BotoCoreError, aiohttp.ClientError, ValueError, KeyError) as error:
            # ValueError and KeyError mean that the response is not DynamoDB's.
            unknown: Applied = "unknown" if writes and not _was_not_sent(error) else "no"
            raise StoreUnavailable(f"DynamoDB: {verb}: {_error_name(error)}", applied=unknown) from error
        return response

    async def _open(self) -> Any:
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the DynamoDB client is closed")
            if self._client is None:
                try:
                    self._client = await self._new()
                except _MISCONFIGURED as error:
                    log.error("DynamoDB is misconfigured: %s", error)  # one line is enough
                    raise InvalidOperation(f"DynamoDB is misconfigured: {_error_name(error)}") from error
                except exceptions.BotoCoreError as error:
                    raise StoreUnavailable(f"DynamoDB: {_error_name(error)}") from error
            return self._client

    async def _new(self) -> Any:
        """Return a new client.

        Raise NoCredentialsError if there are no credentials, so that the next call looks for them again.
        """
        settings, session = self._settings, AioSession(profile=self._settings.profile)
        session.register_component("response_parser_factory", _JsonParserFactory())
        if await session.get_credentials() is None:
            raise exceptions.NoCredentialsError
        config = AioConfig(
            max_pool_connections=settings.connections_max + 1,  # one for `ping`
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            parameter_validation=False,
            proxies=_proxies(settings.endpoint_url),
        )
        made = aioboto3.Session(botocore_session=session, region_name=settings.region).client(
            "dynamodb", endpoint_url=settings.endpoint_url, config=config
        )
        client = await self._resources.enter_async_context(made)
        client.meta.events.register("before-call.dynamodb", _set_body)
        return client


_BODY: ContextVar[bytes] = ContextVar("body")
"""The body of this task's call, encoded in one step instead of by the driver."""


def _set_body(params: dict[str, Any], **_: Any) -> None:
    params["body"] = _BODY.get()


class _JsonParserFactory(AioResponseParserFactory):
    """Makes the driver decode responses in one step. Decoding by the service model takes several times as long."""

    def create_parser(self, protocol_name: str) -> Any:
        return _JsonParser() if protocol_name == "json" else super().create_parser(protocol_name)


class _JsonParser(AioJSONParser):
    def _handle_json_body(self, raw_body: bytes, shape: Any) -> Any:
        response = orjson.loads(raw_body)
        if not isinstance(response, dict):
            raise ValueError("the response is not a JSON object")
        return response


def _translate_error(error: exceptions.ClientError, verb: str, writes: bool) -> Exception:
    """Return the exception for an error response from DynamoDB."""
    code, message = str(error.response["Error"].get("Code")), str(error.response["Error"].get("Message"))
    if code in _THROTTLING_CODES:
        return Throttled(f"DynamoDB: {verb}: {code}")
    match code:
        case "ConditionalCheckFailedException":
            return ConditionFailed(item_returned="Item" in error.response)
        case "ResourceInUseException":
            return ResourceInUse(code)
        case "ResourceNotFoundException":
            return TableNotFound("DynamoDB has no such table")
        case "TransactionConflictException" | "ReplicatedWriteConflictException":
            return Contended(f"DynamoDB: {verb}: {code}")
        case "ItemCollectionSizeLimitExceededException":
            return TooLarge("DynamoDB: the partition has reached its limit of 10 GB")
        case "ValidationException" | "SerializationException":
            return _validation_error(message, verb)
    unknown: Applied = "unknown" if writes and _status(error) >= 500 else "no"
    return StoreUnavailable(f"DynamoDB: {verb}: {code}", applied=unknown)


def _status(error: exceptions.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


def _validation_error(message: str, verb: str) -> TableError:
    """Return an error without DynamoDB's message, which may contain values."""
    if "Item size" in message:
        return TooLarge("DynamoDB: the item exceeds 400 KB")
    return InvalidOperation(f"DynamoDB rejects {verb}: a value, key or option is invalid for this table")


def _was_not_sent(error: Exception) -> bool:
    """Return whether a request certainly did not reach DynamoDB."""
    if isinstance(error, exceptions.EndpointConnectionError):
        return isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError)
    return isinstance(error, _NEVER_SENT)


def _proxies(endpoint_url: str | None) -> dict[str, str] | None:
    """Return no proxies for an endpoint that has none, which the driver would not know. None is the driver's choice."""
    return None if endpoint_url is None or environment_proxy(endpoint_url) else {}


def _error_name(error: Exception) -> str:
    """Return an error's type. The driver's message may contain host names and response data."""
    through = " (the proxy of HTTP_PROXY or HTTPS_PROXY)" if isinstance(error, exceptions.ProxyConnectionError) else ""
    return type(error).__name__ + through
