"""Defines every setting of the server, with its type, bounds, default and description, as one frozen value.

`Settings` has the fields, and `SETTINGS` has them as rows: the flags, the variables, the keys of the TOML file,
`--help` and the docs are made from these rows. `loading.py` fills the value. Secrets are masked in `repr`, in errors
and wherever `shown` is used. Only the attribute itself has the whole secret.

It must not know: the command line, where values come from, the server, the database.

    RuntimeError
      StartError          the server can't start, and the message says why
        SettingsError     a setting is wrong
"""

from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

from server.settings import checks
from server.settings.groups import (
    CONNECTING,
    CONNECTIONS,
    DATA,
    LIMITS,
    LISTS,
    LOAD,
    LOGGING,
    MIB,
    MIGRATIONS,
    OBSERVING,
    PREFIX,
    STATEMENTS,
    About,
    ByteLimit,
    Positive,
    Seconds,
    Setting,
    Text,
    setting_of,
    shown,
)
from server.settings.retries import RetrySettings

CONFIG_VARIABLE = PREFIX + "CONFIG"
PREDECESSOR_VARIABLE = PREFIX + "PREDECESSOR"
"""Variables that are not settings: the path of a TOML file; the state for a new program (processes/handover.py)."""


class StartError(RuntimeError):
    """The server can't start, or a command fails. The message is for people, without internals."""


class SettingsError(StartError):
    """Settings are wrong. `faults` has one line for each, with its flag, variable or key."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Settings(RetrySettings, frozen=True, kw_only=True):
    """Every setting of the server, with its default.

    `server.settings.loading.load` reads and checks the values. A value built directly (in tests) is not checked.
    Times are seconds, sizes bytes, pages rows; paths are relative to the folder in which the server was started.
    """

    database_url: Annotated[
        str | None,
        Meta(
            description="The PostgreSQL to use, as postgresql://user:password@host:port/database; without it an "
            "embedded one is started. Other users of the machine can see flags: put a password into the variable or "
            "the file."
        ),
        About("Data", metavar="URL", is_secret=True, is_of_commands=True, check=checks.database_url),
    ] = None
    data_dir: Annotated[
        Path | None,
        Meta(
            description="Folder of the embedded PostgreSQL; without it the platform's folder for user data. Not "
            "used with database_url."
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
            description="Apply pending migrations to the database at database_url before serving; the embedded one "
            "is always migrated."
        ),
        DATA,
    ] = False
    demo: Annotated[bool, Meta(description="Load the sample rows if the database is empty."), DATA] = False
    read_only: Annotated[bool, Meta(description="Refuse all requests that would write."), DATA] = False
    resources: Annotated[
        Text | None,
        Meta(
            description="Resources to serve instead of the built-in ones: package.module:name or /path/file.py[:name]."
        ),
        About("Data", metavar="MODULE:NAME", is_of_commands=True),
    ] = None
    inspect: Annotated[
        bool,
        Meta(description="Serve the tables of the database at database_url, without declarations."),
        About("Data", is_of_commands=True),
    ] = False
    hints: Annotated[
        Path | None,
        Meta(description="TOML file of hints for inspect: names, keys of views, what to skip, functions to publish."),
        About("Data", metavar="FILE", is_of_commands=True),
    ] = None
    view_seconds: Annotated[
        Seconds,
        Meta(
            description="How long inspect looks at the rows of views in all, to find keys that no constraint has; one "
            "look takes at most 5 seconds."
        ),
        About("Data", metavar="SECONDS", is_of_commands=True),
    ] = 30.0
    python_path: Annotated[
        Text | None,
        Meta(
            description="Folders, with : between, from which your resources may import modules, besides that of the "
            "file with the resources, and after everything installed; the program in one file takes third-party "
            "modules from there."
        ),
        About("Data", metavar="FOLDERS", is_of_commands=True),
    ] = None
    migration_lock_timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a migration waits for a lock, with requests to that table waiting behind it, "
            "before it lets them pass and tries again."
        ),
        MIGRATIONS,
    ] = 2.0
    migration_wait_seconds: Annotated[
        Seconds, Meta(description="How long a migration tries to get its locks before it gives up."), MIGRATIONS
    ] = 600.0

    pool_size: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Connections for requests, of the whole server; each worker has its share, at least one. Each "
            "worker has one more connection for the readiness check, and, without max_requests_per_client, one for a "
            "client that finds all others in use by one client.",
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
            description="How long the statements of a read with a filter may take together before a 504; for a "
            "stream, each of them. If it is not set, only statement_timeout_seconds applies, to each statement."
        ),
        CONNECTIONS,
    ] = None
    temp_file_limit_bytes: Annotated[
        ByteLimit | None,
        Meta(
            description="How much PostgreSQL may write to disk to sort and join for one connection, its "
            "temp_file_limit; beyond it a 400. The role needs the privilege to set temp_file_limit. Without it the "
            "server sets none."
        ),
        CONNECTIONS,
    ] = None
    idle_transaction_timeout_seconds: Annotated[
        Seconds,
        Meta(description="After how long PostgreSQL ends an idle transaction."),
        CONNECTIONS,
    ] = 30.0
    network_timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="How long the network may be silent before a connection to PostgreSQL is closed; and, up to 1 "
            "second, how long a statement may exceed statement_timeout_seconds before its connection is closed."
        ),
        CONNECTING,
    ] = 5.0
    pooler: Annotated[
        Literal["none", "transaction"],
        Meta(
            description="With transaction, database_url leads to a pooler that assigns a connection for one "
            "transaction, such as pgbouncer with pool_mode=transaction. Then some settings must be set for the "
            "role."
        ),
        CONNECTING,
    ] = "none"

    page_size: Annotated[Positive, Meta(description="Rows of a page when page[size] is not sent."), LISTS] = 30
    max_page_size: Annotated[Positive, Meta(description="The largest page[size]."), LISTS] = 10_000
    unpaginated: Annotated[
        Literal["on", "off"] | Positive,
        Meta(description="Whether page[size]=0 returns all rows: on, off, or at most this many rows."),
        LISTS,
    ] = "on"
    total: Annotated[
        Literal["exact", "estimated", "capped", "none"],
        Meta(description="How meta.total is found when page[total] is not sent."),
        LISTS,
    ] = "exact"
    max_include_depth: Annotated[
        int, Meta(ge=0, le=32, description="The longest chain of relationships in include."), LISTS
    ] = 3
    max_includes: Annotated[Positive, Meta(description="The most relationships that one include follows."), LISTS] = 20
    max_included: Annotated[Positive, Meta(description="The most included resources of one answer."), LISTS] = 100_000
    max_included_page: Annotated[
        Positive, Meta(description="The largest includePage[path][size]: related resources of each resource."), LISTS
    ] = 1000
    max_groups: Annotated[Positive, Meta(description="The most groups of a page of groups."), LISTS] = 1000
    max_import_bytes: Annotated[
        ByteLimit, Meta(description="The largest file of CSV or NDJSON that one request creates resources of."), LISTS
    ] = 256 * MIB
    pages: Annotated[bool, Meta(description="Answer browsers with pages for people."), LISTS] = True
    csv_safe: Annotated[
        bool,
        Meta(description="Write a ' before texts of CSV that a program for spreadsheets would take for formulas."),
        LISTS,
    ] = True
    max_streams: Annotated[
        Positive | None,
        Meta(
            description="Long answers without pages that the whole server sends at once, each on a connection to "
            "PostgreSQL; each worker has its share, at least one, and one client may have half of that. Without it "
            "a quarter of pool_size, but at least two for each worker that has three connections."
        ),
        LISTS,
    ] = None
    stream_seconds: Annotated[
        Seconds, Meta(description="After how long such an answer is ended, complete or not."), LISTS
    ] = 300.0

    max_filter_depth: Annotated[
        int, Meta(ge=1, le=64, description="How deep groups, any and has may be nested in a filter."), LIMITS
    ] = 10
    max_filter_nodes: Annotated[
        int, Meta(ge=1, le=10_000, description="The most conditions and groups in one filter."), LIMITS
    ] = 100
    max_query_cost: Annotated[
        Positive | None,
        Meta(description="The most that a read may cost, by a formula of what it asks for; without it any cost."),
        LIMITS,
    ] = None
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
    allow_rollback: Annotated[
        bool, Meta(description="Whether a write with Prefer: tx=rollback is tried and undone."), LIMITS
    ] = True
    max_operations: Annotated[Positive, Meta(description="The most operations of one request."), LIMITS] = 1000
    max_bulk_rows: Annotated[
        Positive, Meta(description="The most resources that one operation with a filter writes."), LIMITS
    ] = 10_000
    max_body_bytes: Annotated[
        int, Meta(ge=1, le=1024 * MIB, description="The largest body of a request; above it a 413."), LIMITS
    ] = 4 * MIB
    max_answer_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1024 * MIB,
            description="The most bytes of an answer, or of what a stream holds in memory; above it a 400.",
        ),
        LIMITS,
    ] = 64 * MIB
    max_url_bytes: Annotated[
        int, Meta(ge=256, le=16 * MIB, description="The longest URL of a request; above it a 414."), LIMITS
    ] = 16_384
    max_query_bytes: Annotated[
        int, Meta(ge=256, le=64 * MIB, description="The largest body of a QUERY; above it a 413."), LIMITS
    ] = MIB
    max_header_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=16 * MIB,
            description="The largest head of a request, URL included; above it the connection is closed.",
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
            description="How many values the arrays and objects of a body may have in total, an empty one counted "
            "as one. A worker answers no other request while it reads them.",
        ),
        LIMITS,
    ] = 100_000

    max_connections: Annotated[
        Positive,
        Meta(
            description="Connections of clients that the whole server holds; each worker has its share, at least "
            "one. Beyond it a new one replaces the one with the least progress."
        ),
        LOAD,
    ] = 10_000
    max_connections_per_client: Annotated[
        Positive | None,
        Meta(
            description="How many of these one address may have; each worker has its share, at least one. It does "
            "not apply to trusted_proxies and Unix sockets. Without it half of max_connections."
        ),
        LOAD,
    ] = None
    max_requests: Annotated[
        Positive,
        Meta(
            description="Requests that the whole server answers at once; each worker has its share, at least one. "
            "Beyond it a 503; a client that has half of them in progress gets a 429. Requests whose body is still "
            "arriving and answers that are still being sent do not count, nor do health and metrics."
        ),
        LOAD,
    ] = 1000
    max_requests_per_client: Annotated[
        Positive | None,
        Meta(
            description="Connections to PostgreSQL that the requests of one client may hold at once: of the subject of "
            "a token, else of an address; each worker has its share, at least one. Further requests wait, and are a "
            "429 after acquire_timeout_seconds. Without it half of pool_size, and all of it while none of the client's "
            "requests takes 0.05 s."
        ),
        LOAD,
    ] = None
    max_buffered_bytes: Annotated[
        Positive,
        Meta(
            description="Bytes of bodies that the whole server holds, each from its first byte until its answer is "
            "ready, and the same number of bytes of answers that clients have not read; each worker has its share. "
            "If a body does not fit, slow incomplete bodies are closed, oldest first; else it is refused with a 503 "
            "before it is read. A single body always fits, whatever its length. Of the answers, those that have "
            "not been read for longest are closed; those that are being read may take up to twice as many bytes. "
            "Incomplete heads may take the same number of bytes. The objects decoded from a body while it is "
            "processed are not counted."
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
        Meta(description="After how long the connection of a client that does not read its answer is closed."),
        LOAD,
    ] = 60.0

    statement_cache_entries: Annotated[
        Positive,
        Meta(description="Compiled statements that a worker caches, one for each shape of query."),
        STATEMENTS,
    ] = 2000
    statement_cache_bytes: Annotated[
        Positive, Meta(description="Memory that the cached statements may take in a worker."), STATEMENTS
    ] = 16 * MIB

    server_timing: Annotated[
        bool | None,
        Meta(
            description="Send the header Server-Timing with the time of each stage. If it is not set, only a server "
            "on loopback addresses sends it, and not through a proxy, because times can reveal what an answer does "
            "not."
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
            description="Log lines for people, one JSON object a line, or in journald's format, with priorities; "
            "without it journald if systemd reads standard error, else text."
        ),
        LOGGING,
    ] = None
    audit_log: Annotated[
        Text | None,
        Meta(
            description="A file for the audit log, or - for standard output: one JSON line for each written resource, "
            "with who has written it. While it cannot be written, writes are a 503. Without it there is no audit log."
        ),
        About("Logs and timings", metavar="FILE"),
    ] = None
    slow_statement_seconds: Annotated[
        Literal["off"] | Seconds,
        Meta(description="From which duration a SQL statement is logged as slow, never with its values."),
        OBSERVING,
    ] = 1.0
    tracing: Annotated[
        bool,
        Meta(description="Send traces by OpenTelemetry, which has its own variables for the address; needs the extra."),
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
