"""The keys of one issuer, kept fresh in the background, and what a request does that needs a new one.

They are fetched at start, every `refresh_s`, and once more when a token names a key that is not known; but never more
often than every `COOL_S`, so tokens with names that were made up cost the issuer little. When a fetch fails the keys
of before stay good for `STALE_S`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..core import StoreUnavailable, exponential_backoff_s
from ..core.errors import Overloaded
from .jwks import Keys
from .jwks_client import NotFetched, Place, fetched
from .metrics import IssuerMetrics

log = logging.getLogger(__name__)

COOL_S = 5.0
"""How long after a fetch began the next one may."""

RETRY_MAX_S = 60.0
"""How long after a fetch that failed the next one is, at most, if nobody asks for one."""

STALE_S = 24 * 3600.0
"""How long keys are good that could not be fetched again."""

WAIT_S = 15.0
"""How long a request waits for keys: until the next fetch may be, and it has an answer or not."""

WAITING_MAX = 64
"""How many requests of one process wait for the keys of one issuer."""

Fetch = Callable[[Place], Awaitable[Keys]]


class IssuerUnavailable(StoreUnavailable):
    """The keys that a token would be verified by could not be fetched, so nobody can say whether it is good."""


class Source:
    """Where the keys of an issuer come from. `changed` is told when there are others, or none any more."""

    def __init__(
        self,
        place: Place,
        refresh_s: float,
        changed: Callable[[], None],
        metrics: IssuerMetrics,
        fetch: Fetch = fetched,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys: Keys | None = None
        self.refresh_s = refresh_s
        self._place = place
        self._changed = changed
        self._fetch = fetch
        self._clock = clock
        self._fetches = {outcome: metrics.fetches.labels(place.issuer, outcome) for outcome in ("fetched", "failed")}
        self._gauge = metrics.keys.labels(place.issuer)
        self._asked = asyncio.Event()
        self._done = asyncio.Event()
        self._began = -COOL_S
        self._succeeded = 0.0
        self._failures = 0
        self._waiting = 0

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                self._began = self._clock()
                await self._fetch_once()
                self._asked.clear()  # Whoever asked meanwhile is answered by this one.
                self._done.set()
                self._done = asyncio.Event()
                await self._pause()
        finally:
            self._done.set()  # Nobody waits for what will not come: there may be another source.

    async def renewed(self) -> None:
        """Return when the keys were fetched once more.

        Raise IssuerUnavailable where the last fetch failed, or this one does, and Overloaded where too many wait.
        """
        self._asked.set()
        if self._failures:
            raise self.unavailable()
        if self._waiting >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} requests wait for keys of this issuer already", retry_after_s=COOL_S)
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_S):
                await self._done.wait()
        except TimeoutError:
            raise self.unavailable() from None
        finally:
            self._waiting -= 1
        if self._failures:
            raise self.unavailable()

    async def _fetch_once(self) -> None:
        try:
            keys = await self._fetch(self._place)
        except NotFetched as error:
            self._failed(str(error))
        except Exception:  # whatever it was, to fetch no more would be worse
            log.exception("the keys of an issuer cannot be fetched")
            self._failed("a fault of the service")
        else:
            self._took(keys)

    def unavailable(self) -> IssuerUnavailable:
        """Return what is told while nobody can say whether a token is good."""
        detail = "the keys by which this token would be verified cannot be fetched now"
        return IssuerUnavailable(detail, retry_after_s=COOL_S)

    def close(self) -> None:
        """Show no keys any more: the issuer is not configured now."""
        self._gauge.set(math.nan)

    def _took(self, keys: Keys) -> None:
        self._fetches["fetched"].inc()
        self._failures = 0
        self._succeeded = self._clock()
        if self.keys is None or keys.content != self.keys.content:
            log.info("the keys of the issuer %s were fetched: %d that tokens can be verified by", self._name, len(keys))
            self._use(keys)

    def _failed(self, why: str) -> None:
        self._fetches["failed"].inc()
        self._failures += 1
        log.warning("the keys of the issuer %s cannot be fetched: %s", self._name, why)
        if self.keys is not None and self._clock() - self._succeeded > STALE_S:
            log.error("the keys of the issuer %s are too old, and its tokens are not taken any more", self._name)
            self._use(None)

    def _use(self, keys: Keys | None) -> None:
        self.keys = keys
        self._gauge.set(len(keys) if keys is not None else 0)
        self._changed()

    async def _pause(self) -> None:
        """Wait until it is time, or until somebody asks; then until the next fetch may be."""
        backoff_s = exponential_backoff_s(self._failures - 1, COOL_S, RETRY_MAX_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(backoff_s, self.refresh_s) if self._failures else self.refresh_s):
                await self._asked.wait()
        await asyncio.sleep(max(0.0, self._began + COOL_S - self._clock()))

    @property
    def _name(self) -> str:
        return self._place.issuer


class KeysMissing(Exception):
    """A token names a key that is not known, or no keys are known yet: the source may have it soon."""

    def __init__(self, source: Source) -> None:
        super().__init__("the key that a token names is not known here")
        self.source = source
