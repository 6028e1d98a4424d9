"""Takes a changed configuration into service without a restart: on SIGHUP, and when a file of it is another.

A file with a fault, or with a change that needs a restart, changes nothing; its faults are logged as those of a start
are listed. Knows of no request.
"""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter

from ..settings import Fault, Settings, SettingsError, load

log = logging.getLogger(__name__)

Version: TypeAlias = tuple[int, int, int]

POLL_INTERVAL_S = 1.0
"""How often the file is looked at."""

_RESTART_ONLY = ("stores", "auto_create", "default_store", "retry_budget", "traces", "console")
_TABLE_RESTART_ONLY = ("store", "name", "key", "create", "ttl_s", "consistency")


def beyond_reloading(old: Settings, new: Settings) -> list[Fault]:
    """Return what differs that only a restart can change, by its path in the file."""
    needs = "differs from what the service was started with: that needs a restart"
    faults = [Fault(member, needs) for member in _RESTART_ONLY if getattr(old, member) != getattr(new, member)]
    if (old.auth is None) != (new.auth is None):
        faults.append(Fault("auth", needs))  # Nor may a file that lost its tokens open the tables to anybody.
    for name in old.tables.keys() & new.tables.keys():
        before, after = old.tables[name], new.tables[name]
        members = [member for member in _TABLE_RESTART_ONLY if getattr(before, member) != getattr(after, member)]
        if old.options.get(name) != new.options.get(name):
            members.append("options")
        faults += [Fault(f"tables.{name}.{member}", needs) for member in members]
    return faults


def load_for_joining_process(file: Path, accepted: Path) -> Settings:
    """Return the settings for a process that joins others: what the file says now if they could have applied it.

    It is accepted then. Else what `accepted` says, which is the file as it last was.
    """
    served = load(accepted)
    try:
        settings = load(file)
    except SettingsError:
        return served
    if beyond_reloading(served, settings):
        return served
    save_accepted(file, accepted)
    return settings


def save_accepted(file: Path, accepted: Path) -> None:
    """Keep the file as it is now, for processes that join later."""
    copy = accepted.with_name(f"{accepted.name}.{os.getpid()}")
    shutil.copyfile(file, copy)
    copy.replace(accepted)


class Reloader:
    """Looks at a configuration file and hands on what it says, when that may be done.

    `apply` makes the new settings those of the service, or raises SettingsError and changes nothing. `accepted` is
    where a file that was applied is kept, if anywhere.
    """

    def __init__(
        self,
        file: Path,
        settings: Settings,
        apply: Callable[[Settings], Awaitable[None]],
        registry: CollectorRegistry,
        poll_interval_s: float = POLL_INTERVAL_S,
        accepted: Path | None = None,
    ) -> None:
        self._file = file
        self._accepted = accepted
        self._settings = settings
        self._apply = apply
        self._poll_interval_s = poll_interval_s
        self._asked = asyncio.Event()
        self._seen = self._versions()
        self._reloads = Counter(
            "tableside_settings_reloads",
            "Configurations that were read anew, by whether they were applied or refused.",
            ("outcome",),
            registry=registry,
        )

    async def run(self) -> None:
        """Look until cancelled; SIGHUP has the file read even if it looks the same."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        try:
            if await asyncio.to_thread(self._is_another):
                await self.reload()
            while True:
                if await self._has_changed():
                    await self.reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def reload(self) -> bool:
        """Read the file and apply what it says; return whether that was done."""
        try:
            settings = await asyncio.to_thread(load, self._file)
            if faults := beyond_reloading(self._settings, settings):
                raise SettingsError(faults)
            await self._apply(settings)
        except SettingsError as error:
            for fault in error.faults:
                log.error("%s is not applied: %s", self._file, fault)
            self._reloads.labels("refused").inc()
            return False
        except Exception:  # whatever it was, to look no more would be worse
            log.exception("%s is not applied", self._file)
            self._reloads.labels("refused").inc()
            return False
        self._settings = settings
        if self._accepted is not None:
            await asyncio.to_thread(save_accepted, self._file, self._accepted)
        self._reloads.labels("applied").inc()
        log.info("%s is applied", self._file)
        return True

    def _is_another(self) -> bool:
        """Whether the file says something else than what the service was started with, which may have taken a while."""
        try:
            return load(self._file) != self._settings
        except Exception:  # noqa: BLE001  # reading it to apply it tells what
            return True

    async def _has_changed(self) -> bool:
        """Wait a while, or until somebody asks; return whether there is something to read."""
        try:
            async with asyncio.timeout(self._poll_interval_s):
                await self._asked.wait()
        except TimeoutError:
            pass
        versions = await asyncio.to_thread(self._versions)
        changed = self._asked.is_set() or (None not in versions and versions != self._seen)
        self._asked.clear()
        self._seen = self._seen if None in versions else versions
        return changed

    def _versions(self) -> list[Version | None]:
        auth = self._settings.auth
        tokens_file = auth.tokens_file if auth is not None else None
        return [_version(self._file), *([_version(tokens_file)] if tokens_file is not None else [])]


def _version(file: str | Path) -> Version | None:
    """Return what tells one version of a file from another; a mounted one is replaced by way of a link."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
