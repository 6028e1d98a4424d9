"""The open tables by name, each with its store and policies.

A table combines operations on the same key, enforces deadlines and counts outcomes. Tables are opened at start, or when
they are first used, and change with the configuration. Imports `core`, `telemetry`, `stores`, `policies`, `auth` and
`settings`.
"""

from .admission import InFlight, Reservation
from .catalog import Catalog
from .entry import CatalogEntry
from .generations import Generation
from .open_stores import Environment, log_start
from .reloader import Reloader, changed_settings, load_for_joining_process, save_accepted
from .table import Table
from .table_metrics import BUCKETS_S, CatalogMetrics

__all__ = [
    "BUCKETS_S",
    "Catalog",
    "CatalogEntry",
    "CatalogMetrics",
    "Environment",
    "Generation",
    "InFlight",
    "Reloader",
    "Reservation",
    "Table",
    "changed_settings",
    "load_for_joining_process",
    "log_start",
    "save_accepted",
]
