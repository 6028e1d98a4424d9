"""Translates DynamoDB's error responses and the driver's errors, and states whether a write may be applied.

DynamoDB's messages are not passed on, because they may contain values. Those of the driver about its configuration name
variables, profiles and files.
"""

from collections.abc import Iterator

import aiohttp
from botocore import exceptions

from ...core import (
    Applied,
    Contended,
    InvalidOperation,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
)

DRIVER_ERRORS = (exceptions.BotoCoreError, aiohttp.ClientError, OSError, ValueError, KeyError)
"""What the driver raises besides ClientError: ValueError and KeyError mean that the response is not DynamoDB's."""

_THROTTLED = ("LimitExceeded", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "Throttling", "TooManyRequests")
_ACCESS_DENIED = ("AccessDenied", "NotAuthorized", "UnauthorizedOperation")
_REJECTED = {
    "AWS does not know the access key, or it is disabled": (
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "UnrecognizedClient",
    ),
    "the AWS session token has expired, or the clock is wrong": ("ExpiredToken", "RequestExpired"),
    "the AWS secret key is wrong, or the clock is": ("InvalidSignature", "SignatureDoesNotMatch"),
    "the AWS account is not enabled for DynamoDB in this region": ("OptInRequired", "SubscriptionRequired"),
}
"""What the codes mean that no retry changes. Here and above, codes have no `Exception` at the end."""

_MISCONFIGURED = (
    exceptions.ConfigNotFound,
    exceptions.ConfigParseError,
    exceptions.InfiniteLoopConfigError,
    exceptions.InvalidConfigError,
    exceptions.InvalidDefaultsMode,
    exceptions.InvalidRegionError,
    exceptions.NoRegionError,
    exceptions.ProfileNotFound,
)
"""What cannot change while the process runs."""

_TLS_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "NO_CERTIFICATE_OR_CRL_FOUND")

_NEVER_SENT = (exceptions.ConnectTimeoutError, exceptions.CredentialRetrievalError, exceptions.ProxyConnectionError)


class ConditionFailed(Exception):
    """The condition of a write was false."""


class ResourceInUse(Exception):
    """The resource to create exists already or is being created."""


class AccessDenied(StoreMisconfigured):
    """The identity lacks the permission for a call."""


def from_error_response(error: exceptions.ClientError, verb: str, writes: bool) -> Exception:
    """Return the exception for an error response from DynamoDB, or from the service that issues credentials."""
    code, message = str(error.response["Error"].get("Code")), str(error.response["Error"].get("Message"))
    name = code.removesuffix("Exception")
    if name in _THROTTLED:
        return Throttled(f"DynamoDB: {verb}: {code}")
    match code:
        case "ConditionalCheckFailedException":
            return ConditionFailed(code)
        case "ResourceInUseException":
            return ResourceInUse(code)
        case "ResourceNotFoundException":
            return TableNotFound("DynamoDB has no such table")
        case "TransactionConflictException" | "ReplicatedWriteConflictException":
            return Contended(f"DynamoDB: {verb}: {code}")
        case "ItemCollectionSizeLimitExceededException":
            return TooLarge("DynamoDB: the partition has reached its limit of 10 GB")
        case "ValidationException" | "SerializationException" if "Item size" in message:
            return TooLarge("DynamoDB: the item exceeds 400 KB")
        case "ValidationException" | "SerializationException":  # its message may contain values
            return InvalidOperation(f"DynamoDB rejects {verb}: a value, key or option is invalid for this table")
    if name in _ACCESS_DENIED:
        return AccessDenied(f"the policy of the AWS identity does not permit {error.operation_name} ({code})")
    for detail, names in _REJECTED.items():
        if name in names:
            return StoreMisconfigured(f"{detail} ({code})")
    unknown: Applied = "no" if is_rejected(error) or not writes else "unknown"
    return StoreUnavailable(f"DynamoDB: {verb}: {code}", applied=unknown)


def is_rejected(error: object) -> bool:
    """Return whether an error is a response that rejects a request: DynamoDB can be reached, and applied nothing."""
    metadata = error.response.get("ResponseMetadata", {}) if isinstance(error, exceptions.ClientError) else {}
    return int(metadata.get("HTTPStatusCode", 500)) < 500


def from_opening_error(error: Exception) -> TableError:
    """Return the error for a client that cannot be made. InvalidOperation ends the start of the service."""
    if isinstance(error, exceptions.NoRegionError):
        return InvalidOperation("DynamoDB is misconfigured: there is no region: set `region`, or AWS_REGION")
    if isinstance(error, (*_MISCONFIGURED, ValueError)):
        return InvalidOperation(f"DynamoDB is misconfigured: {error}")
    return from_driver_error(error, "open", writes=False)


def from_driver_error(error: Exception, verb: str, writes: bool) -> TableError:
    """Return the error for a call without a response from DynamoDB."""
    if (detail := _misconfiguration(error)) is not None:
        return StoreMisconfigured(detail)
    never_sent = isinstance(error, _NEVER_SENT)
    if isinstance(error, exceptions.EndpointConnectionError):
        never_sent = isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError)
    unknown: Applied = "unknown" if writes and not never_sent else "no"
    detail = "DynamoDB cannot be reached, or the connection broke"
    if isinstance(error, exceptions.CredentialRetrievalError):
        detail = "the provider of the AWS credentials cannot be reached, or rejects the request"
    elif any(isinstance(cause, aiohttp.ClientConnectorDNSError) for cause in _causes(error)):
        detail = "the host name of DynamoDB cannot be resolved: check `region` and `endpoint_url`"
    elif isinstance(error, exceptions.ProxyConnectionError):
        detail = "the proxy of HTTP_PROXY or HTTPS_PROXY cannot be reached"
    elif isinstance(error, ValueError | KeyError):
        detail = "the server does not respond like DynamoDB"
    return StoreUnavailable(f"{detail} ({verb}: {type(error).__name__})", applied=unknown)


def _misconfiguration(error: Exception) -> str | None:
    """Return what is wrong with the credentials or with TLS and does not become right by a retry, else None."""
    if isinstance(error, exceptions.NoCredentialsError):
        return (
            "there are no AWS credentials (NoCredentialsError): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
            "`profile`, or a role"
        )
    if isinstance(error, exceptions.PartialCredentialsError):
        return f"the AWS credentials are incomplete: {error}"
    if isinstance(error, exceptions.SSOError | exceptions.TokenRetrievalError):
        return f"the AWS SSO session is missing or has expired ({type(error).__name__}): run `aws sso login`"
    for cause in _causes(error):
        if (message := getattr(cause, "verify_message", None)) is not None:  # aiohttp's own lacks it
            return f"the TLS certificate of DynamoDB is not accepted: {message}"
        if (reason := getattr(cause, "reason", None)) in _TLS_REASONS:
            return f"DynamoDB does not accept TLS at this address, or AWS_CA_BUNDLE is not PEM ({reason})"
        if isinstance(cause, OSError) and cause.filename:
            return f"a file of the AWS configuration cannot be read: {cause.filename}: {cause.strerror}"
        if isinstance(cause, FileNotFoundError | PermissionError):
            return f"the file of AWS_CA_BUNDLE cannot be read: {cause.strerror}"
    return None


def _causes(error: object) -> Iterator[BaseException]:
    """Yield an error, and the errors that the driver and its HTTP client wrapped in it."""
    while isinstance(error, BaseException):
        yield error
        inner = error.kwargs.get("error") if isinstance(error, exceptions.BotoCoreError) else None
        error = inner or getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
