"""Operations that arrive together share one call of the store, and no call of the store is larger than allowed."""

from .metrics import Metrics
from .policy import Coalesce

__all__ = ["Coalesce", "Metrics"]
