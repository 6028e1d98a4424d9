"""The validated configuration: units, limits and defaults of every option, and every error of a file at once.

Settings of stores, callers, logs and traces are in their own packages. Imports `core`, `telemetry`, `stores`, `auth`.
"""

from .faults import NAME, Fault, SettingsError
from .limits import ConsoleSettings, LimitSettings, RetryBudgetSettings
from .loader import default_settings, load, validate
from .settings import Settings, StoreSettings
from .tables import BatchSettings, CacheSettings, CostSettings, DirectionSettings, TableLocation, TableSettings

__all__ = [
    "NAME",
    "BatchSettings",
    "CacheSettings",
    "ConsoleSettings",
    "CostSettings",
    "DirectionSettings",
    "Fault",
    "LimitSettings",
    "RetryBudgetSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TableLocation",
    "TableSettings",
    "default_settings",
    "load",
    "validate",
]
