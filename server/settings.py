"""The settings: one frozen value, and the one list of them.

In: nothing; `server/loading.py` fills it. Out: `Settings`, whose fields carry name, type, bounds, default and
description, and `SETTINGS`, the same as rows: from these follow the flags, the variables, the keys of the
TOML file, `--help` and the docs. Secrets are masked in `repr`, in errors and wherever `shown` is used; only
the attribute itself holds the whole.

It must not know: the command line, where values come from, the server, the database.

    RuntimeError
      StartError          the server can't start, and the message tells a person why
        SettingsError     a setting is wrong
"""

from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from server import checks
from server.setting_groups import (
    ADDRESS,
    CONNECTING,
    CONNECTIONS,
    DATA,
    FRONT,
    LIMITS,
    LISTENING,
    LISTS,
    LOAD,
    LOGGING,
    MIB,
    MIGRATIONS,
    OBSERVING,
    PORT,
    PREFIX,
    STATEMENTS,
    About,
    ByteLimit,
    Port,
    Positive,
    Seconds,
    Setting,
    Text,
    setting_of,
    shown,
)

CONFIG_VARIABLE = PREFIX + "CONFIG"
PREDECESSOR_VARIABLE = PREFIX + "PREDECESSOR"
"""Variables that are no setting: the path of a TOML file; what one program tells the next (processes/handover.py)."""


class StartError(RuntimeError):
    """The server can't start or a command can't be done; the message is for a person, without internals."""


class SettingsError(StartError):
    """Settings that can't be used. `faults` is one line for each, which names its flag, variable or key."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of the server, with its default.

    `server.loading.load` makes one from outside; built directly (in tests) it takes its values as they are.
    Times are seconds, sizes bytes, pages rows; paths are relative to the folder the server was started in.
    """

    host: Annotated[
        str,
        Meta(min_length=1, description="Address or name to listen on."),
        ADDRESS,
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port to listen on; 0 takes any free one."), PORT] = 8080
    unix_socket: Annotated[
        Path | None,
        Meta(description="Listen on a Unix socket at this path; host and port are then not used."),
        About("Listening", metavar="PATH", takes_restart=True),
    ] = None
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Processes that answer requests, on the same address."), LISTENING
    ] = 1
    admin_host: Annotated[
        str,
        Meta(min_length=1, description="Address or name that admin_port is on."),
        ADDRESS,
    ] = "127.0.0.1"
    admin_port: Annotated[
        Port | None,
        Meta(description="A TCP port for health and metrics alone, which the other one then does not answer."),
        PORT,
    ] = None
    drain_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a stopping worker waits for its idle connections, whose next answer is their last; "
            "at most the 25 seconds of a stop."
        ),
        LISTENING,
    ] = 2.0
    worker_timeout_seconds: Annotated[
        Seconds,
        Meta(description="After how long a worker whose event loop hangs is killed, and another one started."),
        LISTENING,
    ] = 30.0
    public_url: Annotated[
        str | None,
        Meta(
            description="The server's URL as clients see it; with it links are absolute, without it paths. Behind a "
            "proxy that takes a prefix away: with that prefix, or that prefix alone."
        ),
        About(FRONT, metavar="URL", check=checks.public_url),
    ] = None
    path_prefix: Annotated[
        str,
        Meta(
            pattern=r"^(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$",
            description="What all paths begin with, /-/live among them; links too, unless public_url is set.",
        ),
        About(FRONT, metavar="PATH", expected="a path such as /api, or an empty text"),
    ] = ""
    trusted_proxies: Annotated[
        Text | None,
        Meta(
            description="Proxies whose Forwarded and X-Forwarded headers are believed: addresses and networks, with "
            "commas between, and unix for whoever connects to the Unix socket. Without it none."
        ),
        About(FRONT, metavar="NETWORKS", check=checks.trusted_proxies),
    ] = None
    cors_origins: Annotated[
        Text | None,
        Meta(
            description="Origins whose web pages may use the server, with commas between, or * for all; without it "
            "none but its own."
        ),
        About(FRONT, metavar="ORIGINS", check=checks.cors_origins),
    ] = None
    allowed_hosts: Annotated[
        Text | None,
        Meta(
            description="Names that the Host of a request may have, with commas between, or * for all; else a 421. "
            "Without it the addresses that the server listens on, localhost and loopback addresses, and the host of "
            "public_url; on a Unix socket all names."
        ),
        About(FRONT, metavar="NAMES", check=checks.allowed_hosts),
    ] = None
    compression: Annotated[
        Literal["off", "gzip"],
        Meta(description="Whether answers over 1 KB are compressed for clients that take it; a proxy does it cheaper."),
        About(FRONT),
    ] = "off"
    cache_control: Annotated[
        str,
        Meta(
            description="The header Cache-Control of resources that are read; that of errors is no-store. Empty, by "
            "flag or file, for none."
        ),
        About(FRONT, metavar="DIRECTIVES", check=checks.cache_control),
    ] = "no-cache"

    database_url: Annotated[
        str | None,
        Meta(
            description="The PostgreSQL to use, as postgresql://user:password@host:port/database; without it "
            "an embedded one is started. Other users of the machine can see flags: a password is better off "
            "in the variable or the file."
        ),
        About("Data", metavar="URL", is_secret=True, is_of_commands=True, check=checks.database_url),
    ] = None
    data_dir: Annotated[
        Path | None,
        Meta(
            description="Folder of the embedded PostgreSQL; without it the platform's folder for user data. With "
            "database_url it is not used."
        ),
        About("Data", metavar="FOLDER", is_of_commands=True, takes_restart=True),
    ] = None
    migrations: Annotated[
        Path | None,
        Meta(description="Folder of your own numbered SQL files; without it those of the built-in resources."),
        About("Data", metavar="FOLDER", is_of_commands=True),
    ] = None
    migrate: Annotated[
        bool,
        Meta(
            description="Apply outstanding migrations to the database at database_url before serving; "
            "the embedded one is always migrated."
        ),
        DATA,
    ] = False
    migration_lock_timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a migration stands in the queue for a lock, and requests to that table behind it, "
            "before it lets them pass and tries again."
        ),
        MIGRATIONS,
    ] = 2.0
    migration_wait_seconds: Annotated[
        Seconds, Meta(description="For how long a migration tries to get its locks before it gives up."), MIGRATIONS
    ] = 600.0
    demo: Annotated[bool, Meta(description="Load the sample rows if the database is empty."), DATA] = False
    read_only: Annotated[bool, Meta(description="Answer no request that would write."), DATA] = False
    resources: Annotated[
        Text | None,
        Meta(
            description="Resources to serve in place of the built-in ones: package.module:name or /path/file.py[:name]."
        ),
        About("Data", metavar="MODULE:NAME", is_of_commands=True),
    ] = None
    python_path: Annotated[
        Text | None,
        Meta(
            description="Folders, with : between, that your resources may import modules from, after all that is "
            "installed; the program in one file takes third-party modules from there."
        ),
        About("Data", metavar="FOLDERS", is_of_commands=True),
    ] = None

    pool_size: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Connections for requests, of the whole server; each worker has its share, at least one, and "
            "one more connection for the readiness check.",
        ),
        CONNECTIONS,
    ] = 10
    connect_timeout_seconds: Annotated[
        Seconds, Meta(description="How long opening a connection may take."), CONNECTING
    ] = 10.0
    acquire_timeout_seconds: Annotated[
        Seconds, Meta(description="How long a request waits for a free connection before a 503."), CONNECTIONS
    ] = 5.0
    statement_timeout_seconds: Annotated[
        Seconds, Meta(description="How long one SQL statement may run before a 504."), CONNECTIONS
    ] = 30.0
    filter_timeout_seconds: Annotated[
        Seconds | None,
        Meta(
            description="How long the statements of a read with a filter may take together before a 504; of a stream, "
            "each of them. Without it as long as others, statement_timeout_seconds each."
        ),
        CONNECTIONS,
    ] = None
    temp_file_limit_bytes: Annotated[
        ByteLimit | None,
        Meta(
            description="How much PostgreSQL may write to disk to sort and join for one connection, its "
            "temp_file_limit; beyond it a 400. The role needs the right to set temp_file_limit. Without it the server "
            "sets none."
        ),
        CONNECTIONS,
    ] = None
    idle_transaction_timeout_seconds: Annotated[
        Seconds,
        Meta(description="After how long PostgreSQL ends a transaction that does nothing."),
        CONNECTIONS,
    ] = 30.0
    network_timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="How long PostgreSQL may be silent where it has to answer before a connection is given up: on "
            "the network, and, for 1 second at most, beyond statement_timeout_seconds."
        ),
        CONNECTING,
    ] = 5.0
    pooler: Annotated[
        Literal["none", "transaction"],
        Meta(
            description="With transaction, database_url leads to a pooler that lends a connection for one transaction, "
            "such as pgbouncer with pool_mode=transaction. The role must then have some settings of its own."
        ),
        CONNECTING,
    ] = "none"

    page_size: Annotated[Positive, Meta(description="Rows of a page when page[size] is not sent."), LISTS] = 30
    max_page_size: Annotated[Positive, Meta(description="The largest page[size]."), LISTS] = 10_000
    unpaginated: Annotated[
        Literal["on", "off"] | Positive,
        Meta(description="Whether page[size]=0 gives all rows: on, off, or up to so many rows."),
        LISTS,
    ] = "on"
    total: Annotated[
        Literal["exact", "estimated", "none"],
        Meta(description="How meta.total is found when page[total] is not sent."),
        LISTS,
    ] = "exact"
    max_include_depth: Annotated[
        int, Meta(ge=0, le=32, description="The longest chain of relationships in include."), LISTS
    ] = 3
    max_includes: Annotated[
        Positive, Meta(description="The most relationships that one include leads over."), LISTS
    ] = 20
    max_included: Annotated[Positive, Meta(description="The most included resources of one answer."), LISTS] = 100_000
    max_streams: Annotated[
        Positive | None,
        Meta(
            description="Long answers without pages that the whole server sends at once, each on a connection to "
            "PostgreSQL; each worker has its share, at least one, and one client may have half of that. Without it a "
            "quarter of pool_size, of each worker at least two where it has three connections."
        ),
        LISTS,
    ] = None
    stream_seconds: Annotated[
        Seconds, Meta(description="After how long such an answer is ended, whole or not."), LISTS
    ] = 300.0

    max_filter_depth: Annotated[
        int, Meta(ge=1, le=64, description="How deep groups, any and has may be nested in a filter."), LIMITS
    ] = 10
    max_filter_nodes: Annotated[
        int, Meta(ge=1, le=10_000, description="The most conditions and groups in one filter."), LIMITS
    ] = 100
    max_list_values: Annotated[
        int, Meta(ge=1, le=1_000_000, description="The most values in the list of one in_ or notin_."), LIMITS
    ] = 1000
    operations_path: Annotated[
        str,
        Meta(
            pattern=r"^(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$",
            description="The path of atomic operations; empty, by flag or file, for none.",
        ),
        About("Limits of a request", metavar="PATH", expected="a path such as /operations, or an empty text"),
    ] = "/operations"
    max_operations: Annotated[Positive, Meta(description="The most operations of one request."), LIMITS] = 1000
    max_body_bytes: Annotated[
        int, Meta(ge=1, le=1024 * MIB, description="The largest body of a request; above it a 413."), LIMITS
    ] = 4 * MIB
    max_answer_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1024 * MIB,
            description="The most bytes of an answer, or of what a stream holds; above it a 400.",
        ),
        LIMITS,
    ] = 64 * MIB
    max_url_bytes: Annotated[
        int, Meta(ge=256, le=16 * MIB, description="The longest URL of a request; above it a 414."), LIMITS
    ] = 16_384
    max_header_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=16 * MIB,
            description="The largest head of a request, URL included; above it the connection ends.",
        ),
        LIMITS,
    ] = 65_536
    max_json_depth: Annotated[
        int,
        Meta(ge=8, le=500, description="How deep arrays and objects may be nested in a body or filter."),
        LIMITS,
    ] = 64
    max_json_values: Annotated[
        int,
        Meta(
            ge=1000,
            le=100_000_000,
            description="How many values the arrays and objects of a body may have together, an empty one counted as "
            "one. A worker answers nobody else while it reads them.",
        ),
        LIMITS,
    ] = 100_000

    max_connections: Annotated[
        Positive,
        Meta(
            description="Connections of clients that the whole server holds; each worker has its share, at least one. "
            "Beyond it a new one takes the place of the one with the least progress."
        ),
        LOAD,
    ] = 10_000
    max_connections_per_client: Annotated[
        Positive | None,
        Meta(
            description="How many of these one address may have; each worker has its share, at least one. It does not "
            "hold for trusted_proxies and Unix sockets. Without it half of max_connections."
        ),
        LOAD,
    ] = None
    max_requests: Annotated[
        Positive,
        Meta(
            description="Requests that the whole server answers at once; each worker has its share, at least one. "
            "Beyond it a 503; a client that has half of them at work gets a 429. Bodies that arrive and answers that "
            "leave do not count, nor do health and metrics."
        ),
        LOAD,
    ] = 1000
    max_requests_per_client: Annotated[
        Positive | None,
        Meta(
            description="Connections to PostgreSQL that the requests of one client (an address) may hold at once; each "
            "worker has its share, at least one. Further requests wait, and are a 429 after acquire_timeout_seconds. "
            "Without it half of pool_size, and all but one while none of the client's requests takes 0.05 s."
        ),
        LOAD,
    ] = None
    max_buffered_bytes: Annotated[
        Positive,
        Meta(
            description="Bytes of bodies that the whole server holds, each from its first byte until its answer is "
            "ready, and as many of answers that clients have not taken; each worker has its share. Where there is no "
            "room, half bodies that take long are closed, oldest first; else a body is refused with a 503 before it is "
            "read. One body alone has room, whatever its length. Of answers those are closed that have not been read "
            "for longest; those that are read stay up to twice as many bytes. As many bytes are for heads that are "
            "not all there. What is made of a body while it is worked on comes on top."
        ),
        LOAD,
    ] = 512 * MIB
    idle_connection_seconds: Annotated[
        Seconds,
        Meta(
            description="After how long without a request a connection is closed: by default later than load balancers "
            "close theirs."
        ),
        LOAD,
    ] = 620.0
    header_timeout_seconds: Annotated[
        Seconds, Meta(description="How long the head of a request may take to arrive before a 408."), LOAD
    ] = 20.0
    body_timeout_seconds: Annotated[
        Seconds, Meta(description="How long a request with a body may take to arrive before a 408."), LOAD
    ] = 60.0
    request_timeout_seconds: Annotated[
        Seconds,
        Meta(description="How long a request may take, from its first byte until its answer is ready, before a 504."),
        LOAD,
    ] = 120.0
    write_timeout_seconds: Annotated[
        Seconds,
        Meta(description="After how long the connection of a client is closed that does not read its answer."),
        LOAD,
    ] = 60.0

    statement_cache_entries: Annotated[
        Positive,
        Meta(description="Compiled statements that a worker keeps, one for each shape of query."),
        STATEMENTS,
    ] = 2000
    statement_cache_bytes: Annotated[
        Positive, Meta(description="Memory that these may take in a worker."), STATEMENTS
    ] = 16 * MIB

    server_timing: Annotated[
        bool | None,
        Meta(
            description="Send the header Server-Timing with the time of each stage. Without it only where the server "
            "listens on loopback addresses alone: times can reveal what an answer does not."
        ),
        OBSERVING,
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least severe line to log."),
        LOGGING,
    ] = "info"
    log_format: Annotated[
        Literal["text", "json", "journald"] | None,
        Meta(
            description="Log lines for people, one JSON object a line, or as journald takes them, with priorities; "
            "without it journald where systemd reads standard error, else text."
        ),
        LOGGING,
    ] = None
    slow_statement_seconds: Annotated[
        Literal["off"] | Seconds,
        Meta(description="From when on a SQL statement is logged as slow, never with its values."),
        OBSERVING,
    ] = 1.0
    tracing: Annotated[
        bool,
        Meta(description="Send traces by OpenTelemetry, which has variables of its own to say where; needs the extra."),
        OBSERVING,
    ] = False

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(setting.name, shown(setting, getattr(self, setting.name))) for setting in SETTINGS]

    def __repr__(self) -> str:
        return "Settings(" + ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__()) + ")"


_FORMS = get_type_hints(Settings, include_extras=True)
SETTINGS: tuple[Setting, ...] = tuple(
    setting_of(name, _FORMS[name], default)
    for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
)
