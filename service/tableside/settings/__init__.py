"""The configuration: its members with their units, limits and defaults, and the validation of a whole file.

The settings of stores, authentication, logs and traces are in their own packages. Imports `core`, `telemetry`,
`policies`, `stores` and `auth`.
"""

from .faults import NAME, Fault, SettingsError
from .loader import default_settings, load, load_text, tokens_file_of, validate
from .settings import (
    ROOT_PATH,
    BatchSettings,
    DirectionSettings,
    LimitSettings,
    Settings,
    StoreSettings,
    TableLocation,
    TableSettings,
)
from .yaml_file import read_text

__all__ = [
    "NAME",
    "ROOT_PATH",
    "BatchSettings",
    "DirectionSettings",
    "Fault",
    "LimitSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TableLocation",
    "TableSettings",
    "default_settings",
    "load",
    "load_text",
    "read_text",
    "tokens_file_of",
    "validate",
]
