"""Which service the command line asks, as whom, and how it knows it: the options that its verbs share."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tableside_client.client import TableClient
from tableside_client.credential import Credential, CredentialError
from tableside_client.errors import TableError
from tableside_client.tls import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, Tls, TlsFileError

URL = "http://127.0.0.1:8080"


def reaching(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb, whose first argument is a client, as a command with the options that say how to open one."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        credential, tls = _credential(given.pop("token_file")), _tls(given)
        with _connected(given.pop("url"), credential, tls) as client:
            verb(client, **given)

    _, *own = inspect.signature(verb).parameters.values()
    shared = inspect.signature(_shared).parameters.values()
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer looks at
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _shared(
    url: Annotated[str, typer.Option("--url", envvar="TABLESIDE_URL", help="Where the service is.")] = URL,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="TABLESIDE_TOKEN_FILE",
            exists=True,
            dir_okay=False,
            help="A file that holds the bearer token; else it is in TABLESIDE_TOKEN.",
        ),
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(help=f"PEM file of the authorities that its certificate may be of; or {CA_VARIABLE}.")
    ] = None,
    certificate_file: Annotated[
        str | None, typer.Option(help=f"PEM file of a certificate to show to it; or {CERTIFICATE_VARIABLE}.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(help=f"PEM file of that one's key, if it is in another; or {KEY_VARIABLE}.")
    ] = None,
) -> None:
    """Nothing but its parameters is used: the options that all verbs have."""


def _credential(token_file: Path | None) -> Credential:
    return Credential(path=None if token_file is None else str(token_file))


def _tls(given: dict[str, Any]) -> Tls:
    files = [given.pop(name) for name in ("ca_file", "certificate_file", "key_file")]
    try:
        return Tls(*files)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _connected(url: str, credential: Credential, tls: Tls) -> Iterator[TableClient]:
    """Open a client; what fails is told in one line, and the exit code is 1."""
    try:
        tls.require_https(url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    try:
        with TableClient(url, credential=credential, tls=tls) as client:
            yield client
    except (TableError, CredentialError, TlsFileError) as error:
        typer.echo(f"tableside: {error}", err=True)
        raise typer.Exit(1) from None
