"""All configured issuers. They can be replaced at run time, and their keys are refreshed in the background."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .claim_rules import VerifiedToken
from .jwks_client import KeysLocation, fetch_keys
from .jwt_verifier import Verifier, verify_token
from .key_source import FetchKeys, KeySource
from .metrics import IssuerMetrics
from .settings import IssuerSettings

_Task: TypeAlias = asyncio.Task[None]


class Issuers:
    """The issuers whose signed tokens are accepted.

    `changed` is called whenever tokens that were verified before may no longer be valid.
    """

    def __init__(self, changed: Callable[[], None], metrics: IssuerMetrics, fetch: FetchKeys = fetch_keys) -> None:
        self._changed = changed
        self._metrics = metrics
        self._fetch = fetch
        self._settings: Sequence[IssuerSettings] = ()
        self._sources: dict[KeysLocation, KeySource] = {}
        self._verifiers: dict[str, list[Verifier]] = {}
        self._replaced = asyncio.Event()

    def change(self, settings: Sequence[IssuerSettings]) -> None:
        """Replace the issuers. Issuers that stay keep their keys."""
        if settings == self._settings:
            return
        self._settings = settings
        self._sources = {_location(each): self._source(each) for each in settings}
        self._verifiers = {}
        for each in settings:
            self._verifiers.setdefault(each.issuer, []).append(Verifier(each, self._sources[_location(each)]))
        self._changed()
        self._replaced.set()

    def verified(self, token: bytes) -> VerifiedToken | None:
        """Verify a token. Return None if it is not a signed token. Raise TokenRejected, or KeysMissing."""
        return verify_token(token, self._verifiers) if self._verifiers else None

    async def run(self) -> None:
        """Refresh the keys until cancelled."""
        tasks: dict[KeySource, _Task] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                wanted = set(self._sources.values())
                for source in tasks.keys() - wanted:
                    tasks.pop(source).cancel()
                    source.close()
                tasks |= {source: group.create_task(source.run()) for source in wanted - tasks.keys()}
                await self._replaced.wait()
                self._replaced.clear()

    def _source(self, settings: IssuerSettings) -> KeySource:
        """Return the source of an issuer's keys: the existing one if the location of the keys did not change."""
        location = _location(settings)
        if (source := self._sources.get(location)) is None:
            return KeySource(location, settings.refresh_s, self._changed, self._metrics, self._fetch)
        source.refresh_s = settings.refresh_s
        return source


def _location(settings: IssuerSettings) -> KeysLocation:
    return KeysLocation(settings.issuer, settings.jwks_url, settings.ca_file, settings.token_file)
