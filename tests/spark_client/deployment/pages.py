"""The information that Spark shows about an application: every page of its UI and response of its REST API."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

PAUSE_S = 2.0
PLAIN = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/")
ANSWERS = ("environment", "allexecutors", "jobs", "stages?details=true", "storage/rdd")
SQL = "sql?details=true&planDescription=true&length=10000"


class Pages:
    """All content that was seen, by address, including every version of changing content."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(timeout=60, trust_env=False, follow_redirects=True)
        self.seen: dict[str, str] = {}

    def look(self) -> None:
        """Read the current content of every page. Do nothing if the UI has not started or has stopped."""
        try:
            self._look()
        except (httpx.HTTPError, ValueError):  # The UI has not started, or has stopped.
            return

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _look(self) -> None:
        applications = json.loads(self._get("api/v1/applications"))
        for place in PLAIN:
            self._get(place)
        for application in applications:
            root = f"api/v1/applications/{application['id']}"
            for answer in ANSWERS:
                self._get(f"{root}/{answer}")
            for execution in json.loads(self._get(f"{root}/{SQL}")):
                address = f"SQL/execution/?id={execution['id']}"
                if address not in self.seen or execution["status"] == "RUNNING":
                    self._get(address)

    def _get(self, place: str) -> str:
        answer = self._http.get(f"{self._url}/{place}")
        text = answer.raise_for_status().text if answer.status_code != 404 else "[]"
        if text not in self.seen.get(place, ""):
            self.seen[place] = self.seen.get(place, "") + text
        return text


@contextmanager
def watched(url: str) -> Iterator[Pages]:
    """Read the pages every two seconds while the block runs."""
    pages, over = Pages(url), threading.Event()

    def watch() -> None:
        while not over.is_set():
            pages.look()
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield pages
    finally:
        over.set()
        thread.join()
        pages.close()
