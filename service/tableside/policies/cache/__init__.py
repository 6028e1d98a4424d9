"""The cache policy: its entries, and the loads that several gets share."""

from .policy import Cache

__all__ = ["Cache"]
