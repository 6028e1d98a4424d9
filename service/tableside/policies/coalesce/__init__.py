"""Coalescing: shared calls of the store, and the order of operations on one key."""

from .policy import UNLIMITED, Coalesce

__all__ = ["UNLIMITED", "Coalesce"]
