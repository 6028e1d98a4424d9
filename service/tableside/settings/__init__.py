"""Everything an operator may set, with units, limits and defaults; and every fault in a file, found at once."""

from .auth import TOKENS_MAX, AuthSettings, TokenSettings
from .configuration import Settings, StoreSettings
from .faults import NAME, Fault, SettingsError
from .issuers import (
    ALGORITHMS,
    ISSUERS_MAX,
    RULES_MAX,
    Algorithm,
    IssuerSettings,
    RuleSettings,
    checked_url,
    on_loopback,
)
from .patterns import PATTERNS_MAX
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
    "ALGORITHMS",
    "ISSUERS_MAX",
    "NAME",
    "PATTERNS_MAX",
    "RULES_MAX",
    "TOKENS_MAX",
    "Algorithm",
    "AuthSettings",
    "BatchSettings",
    "CacheSettings",
    "ConsoleSettings",
    "CostSettings",
    "DirectionSettings",
    "Fault",
    "IssuerSettings",
    "LimitSettings",
    "LogSettings",
    "Place",
    "RetryBudgetSettings",
    "RuleSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TableSettings",
    "TokenSettings",
    "TraceSettings",
    "checked",
    "checked_url",
    "default_settings",
    "load",
    "on_loopback",
]
