"""The open tables by name, each with its store and policies.

A table combines operations on the same key, enforces deadlines and counts outcomes. Tables are opened at start, or when
they are first used, and change with the configuration. Imports `core`, `telemetry`, `stores`, `policies`, `auth` and
`settings`.
"""

from .admission import AdmissionMetrics, InFlight, InFlightLimit, Reservation
from .backends import log_start
from .catalog import Catalog
from .entry import CatalogEntry
from .generations import Generation
from .reloader import Reloader, changed_settings, load_for_joining_process, save_accepted
from .stack import StackMetrics
from .store_shares import Environment
from .table import Table
from .table_entry import TableEntry
from .table_metrics import BUCKETS_S

__all__ = [
    "BUCKETS_S",
    "AdmissionMetrics",
    "Catalog",
    "CatalogEntry",
    "Environment",
    "Generation",
    "InFlight",
    "InFlightLimit",
    "Reloader",
    "Reservation",
    "StackMetrics",
    "Table",
    "TableEntry",
    "changed_settings",
    "load_for_joining_process",
    "log_start",
    "save_accepted",
]
