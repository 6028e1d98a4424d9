"""All issuers of a configuration, exchangeable while they are used; their keys are kept fresh meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .claim_rules import Verified
from .jwks_client import Place, fetched
from .jwt_verifier import Verifier, verified
from .key_source import Fetch, Source
from .metrics import IssuerMetrics
from .settings import IssuerSettings

_Task: TypeAlias = asyncio.Task[None]


class Issuers:
    """Whose signed tokens are taken. `changed` is told whenever what was verified before may not be good any more."""

    def __init__(self, changed: Callable[[], None], metrics: IssuerMetrics, fetch: Fetch = fetched) -> None:
        self._changed = changed
        self._metrics = metrics
        self._fetch = fetch
        self._settings: Sequence[IssuerSettings] = ()
        self._sources: dict[Place, Source] = {}
        self._verifiers: dict[str, list[Verifier]] = {}
        self._exchanged = asyncio.Event()

    def change(self, settings: Sequence[IssuerSettings]) -> None:
        """Take tokens of these from now on. The keys of those that were there before are kept."""
        if settings == self._settings:
            return
        self._settings = settings
        self._sources = {_place(each): self._source(each) for each in settings}
        self._verifiers = {}
        for each in settings:
            self._verifiers.setdefault(each.issuer, []).append(Verifier(each, self._sources[_place(each)]))
        self._changed()
        self._exchanged.set()

    def verified(self, token: bytes) -> Verified | None:
        """Return what a token gives a right to, None if it is no signed one. Raise Refused, or KeysMissing."""
        return verified(token, self._verifiers) if self._verifiers else None

    async def run(self) -> None:
        """Keep the keys fresh until cancelled."""
        tasks: dict[Source, _Task] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                wanted = set(self._sources.values())
                for source in tasks.keys() - wanted:
                    tasks.pop(source).cancel()
                    source.close()
                tasks |= {source: group.create_task(source.run()) for source in wanted - tasks.keys()}
                await self._exchanged.wait()
                self._exchanged.clear()

    def _source(self, settings: IssuerSettings) -> Source:
        """Return where the keys come from, the same as before if that is nowhere else."""
        place = _place(settings)
        if (source := self._sources.get(place)) is None:
            return Source(place, settings.refresh_s, self._changed, self._metrics, self._fetch)
        source.refresh_s = settings.refresh_s
        return source


def _place(settings: IssuerSettings) -> Place:
    return Place(settings.issuer, settings.jwks_url, settings.ca_file, settings.token_file)
