"""A service that is killed and restarted with the same port, configuration and data."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from servers.process import free_port
from support.running import running


class RestartedService:
    """A context manager that runs the service."""

    def __init__(self, directory: Path, config: Path, environment: Mapping[str, str]) -> None:
        self._arguments = directory, config
        self._environment = environment
        self._port = free_port()
        self._held = ExitStack()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        serving = running(*self._arguments, environment=self._environment, port=self._port)
        self._service = self._held.enter_context(serving)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def kill_and_restart(self, away_s: float) -> None:
        """Kill the service, wait, and start it again. Return when it is ready."""
        self._service.kill()
        self._held.close()
        time.sleep(away_s)
        self.__enter__()
