"""The settings: what they are, how they are checked and described, and where their values come from."""

from server.settings.settings import (
    CONFIG_VARIABLE,
    PREDECESSOR_VARIABLE,
    SETTINGS,
    Settings,
    SettingsError,
    StartError,
)

__all__ = ["CONFIG_VARIABLE", "PREDECESSOR_VARIABLE", "SETTINGS", "Settings", "SettingsError", "StartError"]
