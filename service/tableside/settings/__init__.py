"""The configuration: its members with their units, limits and defaults, and the validation of a whole file.

The settings of stores, authentication, logs and traces are in their own packages. Imports `core`, `telemetry`,
`policies`, `stores` and `auth`. An import with `as` exports its name.
"""

from .faults import NAME as NAME, Fault as Fault, SettingsError as SettingsError
from .loader import (
    default_settings as default_settings,
    load as load,
    load_text as load_text,
    tokens_file_of as tokens_file_of,
    validate as validate,
)
from .settings import (
    ROOT_PATH as ROOT_PATH,
    BatchSettings as BatchSettings,
    DirectionSettings as DirectionSettings,
    LimitSettings as LimitSettings,
    Settings as Settings,
    StoreSettings as StoreSettings,
    TableLocation as TableLocation,
    TableSettings as TableSettings,
)
from .yaml_file import read_text as read_text
