"""Defines the properties of settings: their groups, placeholders and checks, and the types that several settings have.

It must not know: single settings.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from server.settings.describe import alternatives, listed, literals, mask_passwords, placeholder

PREFIX = "WATERSPOUT_"
MIB = 1024 * 1024
DAY_SECONDS = 86_400


class About(msgspec.Struct, frozen=True):
    """The properties of a setting besides its type.

    group, metavar: its group and its placeholder in the help.
    expected: describes the valid values, if the type does not say enough.
    is_secret: whether its password is masked when it is shown.
    is_of_commands: whether other commands than serve have a flag for it, too.
    takes_restart: whether a reload does not change it.
    check: returns the value to keep, or raises ValueError. Its message must not show a secret.
    needs: settings without which it has no effect; one of them is enough. A server that seems to be closed might be
        open.
    """

    group: str
    metavar: str | None = None
    expected: str | None = None
    is_secret: bool = False
    is_of_commands: bool = False
    takes_restart: bool = False
    check: Callable[[str], str] | None = None
    needs: tuple[str, ...] = ()


LISTENING = About("Listening")
ADDRESS = About("Listening", metavar="HOST", takes_restart=True)
PORT = About("Listening", takes_restart=True)
DATA = About("Data")
MIGRATIONS = About("Migrations", is_of_commands=True)
FRONT = "Browsers, caches and proxies"
ACCESS = "Authentication"
AUTHENTICATION = About(ACCESS)
CONNECTIONS = About("Connections to PostgreSQL")
CONNECTING = About("Connections to PostgreSQL", is_of_commands=True)
LISTS = About("Lists and includes")
LIMITS = About("Limits of a request")
LOAD = About("Limits of the server")
STATEMENTS = About("Compiled statements")
OBSERVING = About("Logs and timings")
LOGGING = About("Logs and timings", is_of_commands=True)

Text = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
ByteLimit = Annotated[int, Meta(ge=1024, le=2**40)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=DAY_SECONDS)]


class Setting(msgspec.Struct, frozen=True):
    """A field of `Settings`, with everything that the command line, the docs and messages need. choices: the words that
    are valid values."""

    name: str
    group: str
    description: str
    form: Any  # a type with its bounds, which has no type of its own before Python 3.15
    expected: str
    metavar: str
    default: object
    is_boolean: bool
    is_path: bool
    choices: tuple[str, ...]
    is_secret: bool
    is_of_commands: bool
    takes_restart: bool
    check: Callable[[str], str] | None
    needs: tuple[str, ...]

    @property
    def flag(self) -> str:
        """Its flag, such as `--page-size`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its environment variable, such as `WATERSPOUT_PAGE_SIZE`."""
        return PREFIX + self.name.upper()


def shown(setting: Setting, value: object) -> object:
    """Return the value of a setting for display. The password in a secret is masked."""
    return mask_passwords(value) if setting.is_secret and isinstance(value, str) else value


def setting_of(name: str, form: Any, default: object) -> Setting:
    """Return the setting of a field. form: its annotation."""
    *_, meta, about = form.__metadata__
    words = alternatives(form)
    return Setting(
        name=name,
        group=about.group,
        description=meta.description,
        form=form,
        expected=about.expected or listed(words),
        metavar=about.metavar or placeholder(name, words),
        default=default,
        is_boolean=words == alternatives(bool),
        is_path=words == alternatives(Path),
        choices=literals(form),
        is_secret=about.is_secret,
        is_of_commands=about.is_of_commands,
        takes_restart=about.takes_restart,
        check=about.check,
        needs=about.needs,
    )
