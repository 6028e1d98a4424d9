"""Coalescing: operations that arrive together share one call of the store, and large calls are divided."""

from .metrics import CoalesceMetrics
from .policy import Coalesce
from .shared_singles import SharedSingles

__all__ = ["Coalesce", "CoalesceMetrics", "SharedSingles"]
