"""The cache policy and its entries."""

from .policy import Cache

__all__ = ["Cache"]
