"""Operations that arrive together share one call of the store, and no call of the store is larger than allowed."""

from .metrics import CoalesceMetrics
from .policy import Coalesce

__all__ = ["Coalesce", "CoalesceMetrics"]
