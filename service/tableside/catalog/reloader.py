"""Applies a changed configuration without a restart: on SIGHUP, and when one of its files changes.

A configuration with a fault, or with a change that needs a restart, is not applied. Its faults are logged.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..settings import Fault, Settings, SettingsError, TableSettings, load, load_text, read_text, tokens_file_of

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
"""Interval at which the files are checked for changes."""

FAULTS_LOGGED_MAX = 100
"""Maximum number of faults of one configuration that are logged."""

CHANGES_NAMED_MAX = 20
"""At most so many changed members are named in the log."""

_RESTART_ONLY = ("stores", "auto_create", "default_store", "retry_budget", "traces", "console")
_TABLE_RELOADED = {
    *("deadline_s", "read", "write", "limiter", "batch", "cache", "concurrency_max"),
    *("generations_kept", "generations_idle_s"),
}
"""The settings of tables that may change while the service runs."""


def beyond_reloading(old: Settings, new: Settings) -> list[Fault]:
    """Return a fault, with its path in the file, for each change that needs a restart."""
    needs = "differs from what the service was started with: that needs a restart"
    faults = [Fault(member, needs) for member in _RESTART_ONLY if getattr(old, member) != getattr(new, member)]
    if old.limits.value_bytes_max != new.limits.value_bytes_max:
        faults.append(Fault("limits.value_bytes_max", needs))
    if (old.auth is None) != (new.auth is None):
        faults.append(Fault("auth", needs))  # A file that lost its tokens must not make the tables public.
    for name in old.tables.keys() & new.tables.keys():
        before, after = old.tables[name], new.tables[name]
        changed = [member for member in TableSettings.model_fields if getattr(before, member) != getattr(after, member)]
        members = [member for member in changed if member not in _TABLE_RELOADED]
        if old.options.get(name) != new.options.get(name):
            members.append("options")
        faults += [Fault(f"tables.{name}.{member}", needs) for member in members]
    return faults


def changed_settings(old: Settings, new: Settings) -> list[str]:
    """Return the paths of the settings that differ, at most `CHANGES_NAMED_MAX` of them, and then an ellipsis."""
    before, after = (each.model_dump(exclude={"options"}) for each in (old, new))
    paths = _changed_members(before, after)
    return [*islice(paths, CHANGES_NAMED_MAX), *("…" for _ in islice(paths, 1))]


def _changed_members(old: object, new: object, path: str = "") -> Iterator[str]:
    """Yield the paths of the members that differ, without their values, which may be secret."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed_members(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path


def load_for_joining_process(file: Path, accepted: Path) -> Settings:
    """Return the settings for a worker process that joins running ones.

    They are those of `file` if the running processes could apply them. The file is then saved as accepted. Otherwise
    they are those of `accepted`, the last configuration that was applied.
    """
    served = load(accepted, directory=file.parent)
    try:
        text = read_text(file)
        settings = load_text(text, directory=file.parent)
    except SettingsError:
        return served
    if beyond_reloading(served, settings):
        return served
    save_accepted(text, accepted)
    return settings


def save_accepted(text: str, accepted: Path) -> None:
    """Save the text of the configuration for processes that join later."""
    copy = accepted.with_name(f"{accepted.name}.{os.getpid()}")
    copy.write_text(text, encoding="utf-8")
    copy.replace(accepted)


class Reloader:
    """Watches a configuration file and applies its changes.

    `apply` applies new settings, or raises SettingsError and changes nothing. `accepted` is the path at which a copy
    of each applied file is saved, or None.
    """

    def __init__(
        self,
        file: Path,
        settings: Settings,
        apply: Callable[[Settings], Awaitable[None]],
        registry: CollectorRegistry,
        accepted: Path | None = None,
    ) -> None:
        self._file = file
        self._accepted = accepted
        self._settings = settings
        self._apply = apply
        self._requested = asyncio.Event()
        self._refused_tokens_file: str | None = None
        self._seen = self._versions()
        self._reloads = Counter(
            "tableside_settings_reloads",
            "Reloads of the configuration, by outcome: applied or refused.",
            ("outcome",),
            registry=registry,
        )
        self._current = Gauge(
            "tableside_settings_current",
            "1 if the service uses the configuration file, 0 if it refused the last change of it.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._current.set(1)

    async def run(self) -> None:
        """Check for changes until cancelled. On SIGHUP, read the file even if it looks unchanged."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._requested.set)
        try:
            if await asyncio.to_thread(self._differs):
                await self.reload()
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_INTERVAL_S):
                        await self._requested.wait()
                versions = await asyncio.to_thread(self._versions)
                changed = self._requested.is_set() or not versions.items() <= self._seen.items()
                self._requested.clear()
                self._seen = versions
                if changed:
                    await self.reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def reload(self) -> None:
        """Read the file and apply it."""
        text, applied = "", False
        try:
            text = await asyncio.to_thread(read_text, self._file)
            settings = await asyncio.to_thread(load_text, text, directory=self._file.parent)
            if faults := beyond_reloading(self._settings, settings):
                raise SettingsError(faults)
            await self._apply(settings)
        except SettingsError as error:
            for fault in error.faults[:FAULTS_LOGGED_MAX]:
                log.error("%s is not applied: %s", self._file, fault)
            if (more := len(error.faults) - FAULTS_LOGGED_MAX) > 0:
                log.error("%s is not applied: %d more faults", self._file, more)
            self._refused_tokens_file = await asyncio.to_thread(tokens_file_of, text, self._file.parent)
        except Exception:  # an unexpected error must not end the watch
            log.exception("%s is not applied", self._file)
        else:
            changes = changed_settings(self._settings, settings)
            self._settings, self._refused_tokens_file, applied = settings, None, True
            log.info("%s is applied: %s", self._file, ", ".join(changes) or "nothing has changed")
            try:
                if self._accepted is not None:
                    await asyncio.to_thread(save_accepted, text, self._accepted)
            except OSError:  # a full disk must not end the watch
                log.exception("%s cannot be saved for workers that start later", self._file)
        self._reloads.labels("applied" if applied else "refused").inc()
        self._current.set(applied)

    def _differs(self) -> bool:
        """Return whether the file has changed since the service read it. Its start may have taken a while."""
        try:
            return load(self._file) != self._settings
        except Exception:  # noqa: BLE001  # `reload` reads it again and logs the error
            return True

    def _versions(self) -> dict[str | Path, tuple[int, int, int]]:
        """Return values that change with each file that exists. The absence of one must not hide the change of another.

        They also change when a mounted file is replaced by switching a link.
        """
        auth = self._settings.auth
        versions: dict[str | Path, tuple[int, int, int]] = {}
        for file in (self._file, None if auth is None else auth.tokens_file, self._refused_tokens_file):
            if file is not None:
                with contextlib.suppress(OSError, ValueError):  # a ValueError for a path with U+0000
                    found = os.stat(file)
                    versions[file] = found.st_mtime_ns, found.st_size, found.st_ino
        return versions
