"""Who asks, by name, for what does something per caller below the routes; never a secret."""

from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("tableside_caller", default="")
"""The name of the caller whose request is being served; empty where callers are not told apart."""
