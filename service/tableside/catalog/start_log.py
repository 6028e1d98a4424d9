"""Logs the locations of the stores and the tables at start."""

import logging
from collections.abc import Sequence
from itertools import islice

from ..core.backend import place_of
from ..settings import Settings

NAMES_MAX = 20
"""At most so many tables are named."""

log = logging.getLogger(__name__)


def log_start(settings: Settings, tables: Sequence[str]) -> None:
    """Log the kind and place of each store, and the number and names of the tables."""
    for name, store in settings.stores.items():
        place = place_of(store.options)
        log.info("store %s: %s%s", name, store.kind, f", {place}" if place else "")
    names = ", ".join(islice(tables, NAMES_MAX)) + (", …" if len(tables) > NAMES_MAX else "")
    log.info("tables: %d%s", len(tables), f" ({names})" if names else "")
