"""One aioboto3 client for DynamoDB, opened on first use. Limits concurrent calls and translates errors.

An error states whether a write may have been applied. This module does not retry, and turns the driver's retries off.
"""

import asyncio
import math
import re
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Annotated, Any, TypeAlias

import aioboto3
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from aiobotocore.session import AioSession
from botocore import exceptions
from pydantic import AfterValidator, BaseModel, Field

from ...core import (
    Applied,
    Connections,
    DeadlineExceeded,
    InvalidOperation,
    StoreMisconfigured,
    StoreUnavailable,
    Throttled,
    checked_url,
    environment_proxy,
    url_place,
)
from .errors import DRIVER_ERRORS, AccessDenied, from_driver_error, from_error_response, from_opening_error, is_rejected

Response: TypeAlias = dict[str, Any]

_REGION_VARIABLES = {"region": ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None)}
"""The setting of the region in files, and its variables. The driver alone does not know AWS_REGION."""


def _checked_region(region: str) -> str:
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", region):
        raise ValueError("is not the name of a region, such as eu-west-1")
    return region


class DynamodbSettings(BaseModel, frozen=True, extra="forbid"):
    """The region, endpoint, credentials profile and limits. Times are in seconds.

    Values that are None come from the places that all AWS tools use: environment, shared files, instance metadata.
    """

    region: Annotated[str, Field(min_length=1), AfterValidator(_checked_region)] | None = None
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
        """Raise StoreUnavailable if DynamoDB cannot be reached, or rejects the credentials.

        Tables do not need the permission for ListTables, so without it DynamoDB can be reached.
        """
        try:
            # Outside the call limit: waiting calls do not mean that DynamoDB is unreachable.
            await self._send(self._client or await self._open(), "list_tables", {"Limit": 1}, writes=False)
        except (AccessDenied, Throttled):
            return
        except StoreMisconfigured:
            raise
        except StoreUnavailable as error:
            if not is_rejected(error.__cause__):
                raise
        except InvalidOperation as error:
            raise StoreMisconfigured(error.detail) from error

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
            endpoint: dict[str, Any] = {"RequestItems": {}} if "RequestItems" in parameters else {}
            response: Response = await getattr(client, verb)(**endpoint)
        except exceptions.ClientError as error:
            raise from_error_response(error, verb, writes) from error
        except DRIVER_ERRORS as error:
            raise from_driver_error(error, verb, writes) from error
        return response

    async def _open(self) -> Any:
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the DynamoDB client is closed")
            if self._client is None:
                try:
                    self._client = await self._new()
                except DRIVER_ERRORS as error:
                    raise from_opening_error(error) from error
            return self._client

    async def _new(self) -> Any:
        """Return a new client.

        Raise NoCredentialsError if there are no credentials, so that the next call looks for them again.
        """
        settings = self._settings
        session = AioSession(_REGION_VARIABLES, profile=settings.profile)
        session.register_component("response_parser_factory", _JsonParserFactory())
        if await session.get_credentials() is None:
            raise exceptions.NoCredentialsError
        config = AioConfig(
            max_pool_connections=settings.connections_max + 1,  # one for `ping`
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            parameter_validation=False,
            # None is the driver's choice, which ignores that an endpoint may have no proxy.
            proxies=None if settings.endpoint_url is None or environment_proxy(settings.endpoint_url) else {},
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
