"""The validated configuration: units, limits and defaults of every option, and every error of a file at once.

Settings of stores, callers, logs and traces are in their own packages. Imports `core`, `telemetry`, `stores`, `auth`.
"""

from .faults import NAME, Fault, SettingsError
from .limits import ConsoleSettings, LimitSettings, RetryBudgetSettings
from .loader import checked, default_settings, load
from .settings import Settings, StoreSettings
from .tables import BatchSettings, CacheSettings, CostSettings, DirectionSettings, Place, TableSettings

__all__ = [
    "NAME",
    "BatchSettings",
    "CacheSettings",
    "ConsoleSettings",
    "CostSettings",
    "DirectionSettings",
    "Fault",
    "LimitSettings",
    "Place",
    "RetryBudgetSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TableSettings",
    "checked",
    "default_settings",
    "load",
]
