"""Defines the settings, checks and describes them, and loads their values."""

from server.settings.settings import (
    CONFIG_VARIABLE,
    PREDECESSOR_VARIABLE,
    SETTINGS,
    Settings,
    SettingsError,
    StartError,
)

__all__ = ["CONFIG_VARIABLE", "PREDECESSOR_VARIABLE", "SETTINGS", "Settings", "SettingsError", "StartError"]
