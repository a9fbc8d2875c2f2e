"""What a setting is beyond its type: its group, its placeholder, its check; and the types that many have.

It must not know: any setting.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

MIB = 1024 * 1024
DAY_SECONDS = 86_400


class About(msgspec.Struct, frozen=True):
    """What a setting is beyond its type.

    Its group and its placeholder in the help, what may be given where its type does not say it, whether it is a
    secret, whether the commands other than serve have a flag for it too, whether it holds for as long as the master
    lives, and a last check that returns the value to keep or raises ValueError (whose message must not show a secret).
    """

    group: str
    metavar: str | None = None
    expected: str | None = None
    is_secret: bool = False
    is_of_commands: bool = False
    takes_restart: bool = False
    check: Callable[[str], str] | None = None


LISTENING = About("Listening")
ADDRESS = About("Listening", metavar="HOST", takes_restart=True)
PORT = About("Listening", takes_restart=True)
DATA = About("Data")
MIGRATIONS = About("Migrations", is_of_commands=True)
FRONT = "Browsers, caches and proxies"
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
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=DAY_SECONDS)]
