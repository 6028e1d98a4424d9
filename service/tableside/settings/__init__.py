"""Everything an operator may set, with units, limits and defaults; and every fault in a file, found at once."""

from .auth import PATTERNS_MAX, TOKENS_MAX, AuthSettings, TokenSettings
from .configuration import Settings, StoreSettings
from .faults import NAME, Fault, SettingsError
from .reading import checked, default_settings, load
from .service import ConsoleSettings, LimitSettings, LogSettings, RetryBudgetSettings, TraceSettings
from .tables import (
    BatchSettings,
    CacheSettings,
    CostSettings,
    DirectionSettings,
    Place,
    TableSettings,
)

__all__ = [
    "NAME",
    "PATTERNS_MAX",
    "TOKENS_MAX",
    "AuthSettings",
    "BatchSettings",
    "CacheSettings",
    "ConsoleSettings",
    "CostSettings",
    "DirectionSettings",
    "Fault",
    "LimitSettings",
    "LogSettings",
    "Place",
    "RetryBudgetSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TableSettings",
    "TokenSettings",
    "TraceSettings",
    "checked",
    "default_settings",
    "load",
]
