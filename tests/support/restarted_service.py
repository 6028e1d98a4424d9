"""A service that is killed and restarted with the same port, configuration and data."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from servers.process import free_port
from support.running import running


class RestartedService:
    """A context manager that runs the service."""

    def __init__(self, directory: Path, config: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._config = config
        self._environment = environment
        self._port = free_port()
        self._held = ExitStack()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def kill_and_restart(self, away_s: float) -> None:
        """Kill the service, wait, and start it again. Return when it is ready."""
        self._service.kill()
        self._held.close()
        time.sleep(away_s)
        self._start()

    def _start(self) -> None:
        serving = running(self._directory, self._config, environment=self._environment, port=self._port)
        self._service = self._held.enter_context(serving)
