"""The open tables by name, each with its store and policies.

A table combines operations on the same key, enforces deadlines and counts outcomes. Tables are opened at start, or when
they are first used, and change with the configuration. Imports `core`, `telemetry`, `stores`, `policies`, `auth` and
`settings`. An import with `as` exports its name.
"""

from .admission import InFlight as InFlight, Reservation as Reservation
from .catalog import Catalog as Catalog
from .entry import CatalogEntry as CatalogEntry
from .generations import Generation as Generation
from .open_stores import Environment as Environment, log_start as log_start
from .reloader import (
    Reloader as Reloader,
    changed_settings as changed_settings,
    load_for_joining_process as load_for_joining_process,
    save_accepted as save_accepted,
)
from .table import Table as Table
from .table_metrics import BUCKETS_S as BUCKETS_S, CatalogMetrics as CatalogMetrics
