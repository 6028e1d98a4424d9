"""The open tables by name, each with its store and policies.

A table checks operations, combines those of one key and counts them. Tables are opened when they are first needed and
change when the configuration does. Imports every package before it: `core`, `telemetry`, `stores`, `policies`, `auth`
and `settings`.
"""

from .admission import AdmissionMetrics, Bound, InFlight, Share
from .catalog import Catalog, Environment
from .open_table import Entry
from .reloader import Reloader, keep, load_to_join
from .stack import StackMetrics
from .table import Table
from .table_metrics import BUCKETS_S

__all__ = [
    "BUCKETS_S",
    "AdmissionMetrics",
    "Bound",
    "Catalog",
    "Entry",
    "Environment",
    "InFlight",
    "Reloader",
    "Share",
    "StackMetrics",
    "Table",
    "keep",
    "load_to_join",
]
