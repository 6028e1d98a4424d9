"""The keys of one issuer, refreshed in the background and on demand.

The keys are fetched at start, every `refresh_s`, and when a token names an unknown key. There are at least
`FETCH_INTERVAL_MIN_S` between the starts of two fetches, so tokens with invented key IDs cost the issuer little. If a
fetch fails, the next follows after at most `RETRY_MAX_S`, and the previous keys remain valid for `STALE_MAX_S`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import CollectorRegistry, Gauge

from ..core import StoreUnavailable, exponential_backoff_s
from ..core.errors import Overloaded
from ..telemetry import Counter
from .keys import FetchFailed, KeysLocation, PublicKeySet, fetch_keys

log = logging.getLogger(__name__)

FETCH_INTERVAL_MIN_S = 5.0
RETRY_MAX_S = 60.0
STALE_MAX_S = 24 * 3600.0

WAIT_MAX_S = 15.0
WAITERS_MAX = 64
"""How long a request waits for keys, enough for `FETCH_INTERVAL_MIN_S` and the fetch, and how many may wait."""


class KeySource:
    """Fetches the keys of an issuer. `changed` is called when the keys change or become too old."""

    def __init__(
        self, location: KeysLocation, refresh_s: float, changed: Callable[[], None], metrics: "IssuerMetrics"
    ) -> None:
        self.keys: PublicKeySet | None = None
        self.refresh_s = refresh_s
        self._location = location
        self._issuer = location.issuer
        self._changed = changed
        self._fetches = {outcome: metrics.fetches.labels(location.issuer, outcome) for outcome in ("fetched", "failed")}
        self._gauge = metrics.keys.labels(location.issuer)
        self._asked = asyncio.Event()
        self._done = asyncio.Event()
        self._succeeded = 0.0
        self._failures = 0
        self._waiting = 0

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                began = time.monotonic()
                await self._fetch()
                self._asked.clear()  # This fetch serves all requests made while it ran.
                self._done.set()
                self._done = asyncio.Event()
                pause_s = self.refresh_s
                if self._failures:
                    pause_s = min(pause_s, exponential_backoff_s(self._failures - 1, FETCH_INTERVAL_MIN_S, RETRY_MAX_S))
                with suppress(TimeoutError):  # unless a request needs keys
                    async with asyncio.timeout(pause_s):
                        await self._asked.wait()
                await asyncio.sleep(began + FETCH_INTERVAL_MIN_S - time.monotonic())
        finally:
            self._done.set()  # Wake the waiting requests: no fetch follows, but another source may have replaced this.

    async def refreshed(self) -> None:
        """Wait for a fetch. Raise StoreUnavailable if the last or this one fails, Overloaded if too many wait."""
        self._asked.set()
        if self._failures:
            raise self.unavailable()
        if self._waiting >= WAITERS_MAX:
            detail = f"{WAITERS_MAX} requests already wait for keys of this issuer"
            raise Overloaded(detail, retry_after_s=FETCH_INTERVAL_MIN_S)
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await self._done.wait()
        except TimeoutError:
            raise self.unavailable() from None
        finally:
            self._waiting -= 1
        if self._failures:
            raise self.unavailable()

    async def _fetch(self) -> None:
        try:
            keys = await fetch_keys(self._location)
        except FetchFailed as error:
            why = str(error)
        except Exception:  # a bug must not end the refreshes
            log.exception("the keys of an issuer cannot be fetched")
            why = "a fault of the service"
        else:
            self._fetches["fetched"].inc()
            self._failures, self._succeeded = 0, time.monotonic()
            if self.keys is None or keys.content != self.keys.content:
                log.info("fetched the keys of the issuer %s: %d keys can verify tokens", self._issuer, len(keys.keys))
                self._use(keys)
            return
        self._fetches["failed"].inc()
        self._failures += 1
        log.warning("the keys of the issuer %s cannot be fetched: %s", self._issuer, why)
        if self.keys is not None and time.monotonic() - self._succeeded > STALE_MAX_S:
            log.error("the keys of the issuer %s are too old: its tokens are 503 until a fetch succeeds", self._issuer)
            self._use(None)

    def unavailable(self) -> StoreUnavailable:
        """Return the error for requests whose token cannot be verified without another fetch."""
        detail = "the keys by which this token would be verified cannot be fetched now"
        return StoreUnavailable(detail, retry_after_s=FETCH_INTERVAL_MIN_S)

    def close(self) -> None:
        """Clear the metric of keys, because the issuer is no longer configured."""
        self._gauge.set(math.nan)

    def _use(self, keys: PublicKeySet | None) -> None:
        self.keys = keys
        self._gauge.set(len(keys.keys) if keys is not None else 0)
        self._changed()


class IssuerMetrics:
    """The metrics of issuers. The label `issuer` is the configured issuer, never one that a token names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fetches = Counter(
            "tableside_issuer_fetches",
            "Fetches of an issuer's keys, by outcome: fetched or failed.",
            ("issuer", "outcome"),
            registry=registry,
        )
        self.keys = Gauge(
            "tableside_issuer_keys",
            "Keys of an issuer that can verify tokens now; NaN after the issuer was removed from the configuration.",
            ("issuer",),
            registry=registry,
            multiprocess_mode="livemin",
        )


class KeysMissing(Exception):
    """A token names an unknown key, or no keys are known yet. A fetch from the source may provide it."""

    def __init__(self, source: KeySource) -> None:
        super().__init__("the key that a token names is not known here")
        self.source = source
