"""The last lines of the demonstration: a summary, and suggestions of commands to try."""

import shlex

from examples.demo.service import Service

AIRCRAFT_SHOWN = "N725MQ"
SHOWN = "Shown: a job joined and counted flights. The service was killed, and every flight still counted once."
KEPT = """Try:   {url}/console (tables, rates, latencies), {url}/docs (requests)
       curl {record}
       curl {scan}
Stop:  kill {pid} (its log: {log})"""
STOPPED = """Try:   scripts/demo --keep, then the console at {url}/console
       curl {record}"""


def text(service: Service, *, keep: bool) -> str:
    """Return the lines for a service that is kept, or for one that has been stopped."""
    tables = f"{service.url}/v1/tables"
    values = {
        "url": service.url,
        "record": f"{tables}/aircraft/records/{AIRCRAFT_SHOWN}",
        "scan": shlex.quote(f"{tables}/aircraft/records?prefix=N72&limit=3"),
        "pid": service.process.pid,
        "log": service.log,
    }
    return "\n".join([SHOWN, (KEPT if keep else STOPPED).format(**values)])
