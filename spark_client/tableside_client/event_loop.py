"""The event loop of a client for asyncio."""

import asyncio


class EventLoop:
    """The loop that uses an object first. Connections, locks and tasks cannot be shared with another one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def require_same(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. Raises `RuntimeError` if the first one was another."""
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if running is not self._loop:
            raise RuntimeError(
                "this AsyncClient was used in another event loop before: create a client in each asyncio.run, "
                "or use Client, which threads can share"
            )
        return running
