"""Kill the service during a write, and start it again with the same records."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator

import httpx
from examples.demo.progress import Progress
from examples.demo.service import Service

POLL_S = 0.02
DOWN_S = 1.0
UPDATES = re.compile(r'^tableside_operations_total\{[^}]*operation="update"[^}]*\} (\S+)$', re.MULTILINE)


@contextlib.contextmanager
def killed_during(service: Service, progress: Progress, headers: dict[str, str]) -> Iterator[None]:
    """Kill the service when it has applied the first updates of the body, and restart it after a second."""
    ended = threading.Event()
    thread = threading.Thread(target=_kill_and_restart, args=(service, progress, headers, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _kill_and_restart(service: Service, progress: Progress, headers: dict[str, str], ended: threading.Event) -> None:
    while (applied := _updates(service, headers)) == 0:
        if ended.wait(POLL_S):
            progress.say("  the update ended before the service could be killed")
            return
    pid = service.process.pid
    service.kill()
    progress.say(f"  KILLED the service (kill -9 {pid}) after {applied:,} updates of records")
    time.sleep(DOWN_S)
    service.restart()
    progress.say(f"  restarted it as process {service.process.pid}: the Spark job sends its unanswered requests again")


def _updates(service: Service, headers: dict[str, str]) -> int:
    """Return the number of updates that the service has counted."""
    text = httpx.get(f"{service.url}/metrics", headers=headers, trust_env=False).text
    return sum(int(float(number)) for number in UPDATES.findall(text))
