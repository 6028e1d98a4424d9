"""The name of the current request's caller, for policies that limit each caller separately."""

from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("tableside_caller", default="")
"""The caller's name, never a secret. Empty if callers are not distinguished."""
