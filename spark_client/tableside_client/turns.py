"""Locks by key: writes of one record take turns."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tableside_client.event_loop import EventLoop


class ThreadTurns:
    """Locks for threads. A lock exists while a thread has it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[Any, tuple[threading.Lock, int]] = {}

    @contextmanager
    def take(self, key: Any) -> Iterator[None]:
        """Acquire the lock of a key, and release it at the end of the context."""
        with self._guard:
            lock, users = self._locks.get(key) or (threading.Lock(), 0)
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1


class TaskTurns:
    """Locks for asyncio tasks. A lock exists while a task has it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[Any, tuple[asyncio.Lock, int]] = {}
        self._loop = EventLoop()

    @asynccontextmanager
    async def take(self, key: Any) -> AsyncIterator[None]:
        """Acquire the lock of a key, and release it at the end of the context."""
        self._loop.require_same()
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1
