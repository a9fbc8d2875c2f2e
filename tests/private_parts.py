"""The private and undocumented parts of other packages that the server uses. `CONTRIBUTING.md` says what to do
with a new version of one of these packages.

The tests read this list: tests/unit/test_private_parts.py checks that it is complete and that each part exists, and
both that module and tests/sql/test_private_parts.py check that the parts behave as the server expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A private or undocumented part of a package. owner: the class or module that has it. used_in: the modules that
    use it."""

    owner: str
    name: str
    used_in: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    @property
    def package(self) -> str:
        return self.owner.partition(".")[0]

    def find_owner(self) -> Any:
        """Return the class or module. Raises ImportError or AttributeError if it does not exist any more."""
        try:
            return import_module(self.owner)
        except ModuleNotFoundError:
            module, _, name = self.owner.rpartition(".")
            return getattr(import_module(module), name)


@contextmanager
def naming(part: Part) -> Iterator[None]:
    """Add the part and its use to any exception that the block raises."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{part} is not what {', '.join(part.used_in)} expects. Use: {part.why}") from error


DELEGATE = "server/http/request.py"
BASE = "server/handlers/base.py"
READING = "server/handlers/reading.py"
WRITING = "server/handlers/writing.py"
CUSTOM = "server/handlers/custom.py"
CONNECTION = "server/postgres/connection.py"
DATABASE = "server/postgres/database.py"
METER = "server/postgres/wire/meter.py"
POOLER = "server/postgres/pooler.py"
ROLES = "server/postgres/row_security/connection.py"
DRIVER_ERRORS = "server/postgres/driver_errors.py"
SAID = "server/postgres/said.py"
RUNNER = "migrations/runner.py"

HANDLER = "tornado.web.RequestHandler"
REQUEST = "tornado.httputil.HTTPServerRequest"
HEADERS = "tornado.httputil.HTTPHeaders"
DRIVER = "asyncpg.connection.Connection"
PROTOCOL = "asyncpg.protocol.protocol.BaseProtocol"
STATEMENT = "asyncpg.protocol.protocol.PreparedStatementState"
MESSAGE = "asyncpg.exceptions._base.PostgresMessage"

PARTS = [
    # The server's delegate runs a handler, in place of tornado's.
    Part(HANDLER, "_transforms", (DELEGATE,), "the output transforms, which `flush` calls"),
    Part("tornado.web.Application", "transforms", (DELEGATE,), "classes of output transforms"),
    # The server's requests and headers are made without tornado's constructors.
    Part(REQUEST, "_start_time", (DELEGATE,), "set to the monotonic clock, which `request_time` reads"),
    Part(REQUEST, "_finish_time", (DELEGATE,), "set as tornado's constructor does"),
    Part("tornado.escape", "parse_qs_bytes", (DELEGATE,), "parses arguments on demand, as tornado does at once"),
    Part(HEADERS, "_as_list", ("server/http/headers.py",), "the values of each header, which are read without a call"),
    Part(HEADERS, "_combined_cache", ("server/http/headers.py",), "the only other attribute that its methods use"),
    # Answers are put together without the checks of tornado's own methods.
    Part(
        HANDLER,
        "_headers",
        (BASE, READING, WRITING, "server/handlers/conditional.py"),
        "the headers of the answer, which are set without a check of values",
    ),
    Part(HANDLER, "_write_buffer", (BASE, CUSTOM), "the pieces of the body that are not sent yet"),
    Part(HANDLER, "_headers_written", (BASE, READING, CUSTOM), "whether an error document can still be sent"),
    Part(HANDLER, "_finished", (BASE, READING, DELEGATE), "whether the answer is complete; set when it is given up"),
    Part(HANDLER, "_auto_finish", (BASE, DELEGATE), "switched off while a thread compresses the answer"),
    Part(HANDLER, "ui", (CUSTOM,), "part of a reference cycle, which tornado breaks only when it answers"),
    Part(
        "tornado.web.OutputTransform",
        "transform_first_chunk",
        ("server/http/compression.py", "server/http/cors.py"),
        "adds headers to every answer; tornado calls it before it writes them",
    ),
    # Every statement is measured and counted.
    Part(DRIVER, "_execute", (CONNECTION,), "runs every statement with values; a limit of rows in the protocol"),
    Part(DRIVER, "_executemany", (CONNECTION,), "runs every batch"),
    Part(PROTOCOL, "queries_count", (CONNECTION,), "tells whether a statement was sent before the connection broke"),
    # The state of a connection.
    Part(DRIVER, "_cleanup", (CONNECTION,), "called once the connection is closed or lost"),
    Part(DRIVER, "_protocol", (CONNECTION, METER, ROLES), "asyncpg's protocol; None after the connection was aborted"),
    Part(DRIVER, "_transport", (CONNECTION, METER), "its socket, for keepalive; the meter becomes its protocol"),
    Part(PROTOCOL, "_is_cancelling", (CONNECTION,), "whether a cancelled statement has not ended yet"),
    Part("asyncpg.transaction.Transaction", "commit", (DATABASE,), "sends the text `COMMIT;` through `execute`"),
    Part("asyncpg.transaction.Transaction", "rollback", (DATABASE,), "sends `ROLLBACK;` or `ROLLBACK TO ...`"),
    Part(
        "asyncpg.pool.PoolConnectionProxy",
        "_con",
        ("server/postgres/pool.py",),
        "the connection itself, which is used without its proxy",
    ),
    # A pooler in transaction mode has no named statements.
    Part(DRIVER, "_get_unique_id", (POOLER,), "the name of a statement, which is made empty"),
    Part(DRIVER, "_cleanup_stmts", (CONNECTION,), "closes the statements that left the cache, with a Sync"),
    Part(DRIVER, "_get_statement", (CONNECTION, POOLER, ROLES), "the description of a statement, cached or new"),
    Part(
        DRIVER,
        "_do_execute",
        (POOLER, ROLES),
        "runs statements and batches by an executor, which sends them; raises the errors of a stale description",
    ),
    # The role of a request is set by a statement that is sent before its own.
    Part(DRIVER, "_stmt_cache", (CONNECTION, ROLES), "whether a statement is described already"),
    Part(
        PROTOCOL,
        "_wait_for_cancellation",
        (CONNECTION, ROLES),
        "nothing is sent before a cancelled statement has ended",
    ),
    Part(PROTOCOL, "get_record_class", (CONNECTION, ROLES), "a part of the key of a cached statement"),
    Part(DRIVER, "_drop_global_statement_cache", (POOLER,), "forgets stale descriptions on all connections"),
    Part(STATEMENT, "prepared", (POOLER,), "whether the description is new"),
    Part(STATEMENT, "mark_unprepared", (POOLER,), "the statement is parsed again with its execution"),
    # Errors of the driver.
    Part("asyncpg.exceptions", "_base", (DRIVER_ERRORS,), "its DataError: a value that asyncpg refuses to send"),
    Part(
        MESSAGE,
        "as_dict",
        (SAID, RUNNER, "server/schema/live_statements.py"),
        "the fields of an error, such as the names of table and constraint, and the C function that made it",
    ),
    # Others.
    Part(
        "uvloop.loop.TCPTransport",
        "writelines",
        ("server/http/transport/http1.py",),
        "sends pieces without joining them",
    ),
    Part(
        "pypika.terms.Term",
        "get_sql",
        ("querybuild/declarations/terms.py",),
        "terms that PyPika lacks; its keyword arguments `with_alias` and `subquery`",
    ),
]
