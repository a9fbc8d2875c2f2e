"""The list of private parts (`tests/private_parts.py`) is complete, and each part exists and behaves as the server
expects. `tests/sql/test_private_parts.py` checks what needs a connection to PostgreSQL."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import textwrap
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import uvloop
from asyncpg.exceptions import _base
from pypika import Field
from tornado.escape import parse_qs_bytes
from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPServerRequest, RequestStartLine
from tornado.web import Application, OutputTransform, RequestHandler, _HandlerDelegate

from server.http.headers import Headers
from server.http.request import HandlerDelegate, Request
from tests.private_parts import DRIVER, HANDLER, PARTS, REQUEST, Part, naming
from tests.source import PACKAGES, ROOT, all_modules, modules, name_of, nodes_of, tree_of

FOLDERS = (*PACKAGES, "bench", "deploy")

MAX_SECONDS = 60.0
"""How long one check may take: without a part that it waits for, it would never end."""

DOCUMENTED = {"_replace", "_exit", "_srcfile"}
"""Public names of Python that begin with an underscore: of named tuples, `os` and `logging`."""


# which are used


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def is_own(node: ast.expr) -> bool:
    return ast.unparse(node) in ("self", "cls", "super()")


def names_of_others(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the private names that a module imports, or that it uses of other objects than `self`."""
    for node in nodes:
        match node:
            case ast.Attribute(value=value, attr=name) if not is_own(value):
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr" | "delattr"), args=[value, name, *_]):
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and not is_own(value):
                    yield name.value
            case ast.ImportFrom(module=module, names=imported):
                yield from (module or "").split(".")
                yield from [one.name for one in imported]


def own_names(declared: ast.ClassDef) -> set[str]:
    """Return the names that a class defines, or that its methods use of themselves."""
    names = {node.attr for node in ast.walk(declared) if isinstance(node, ast.Attribute) and is_own(node.value)}
    for node in declared.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {one.id for one in targets if isinstance(one, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@cache
def foreign_names(base: type) -> frozenset[str]:
    """Return the names that a class of another package defines, or that its methods set."""
    if base.__module__.partition(".")[0] in {*PACKAGES, *sys.stdlib_module_names}:
        return frozenset()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
    except (OSError, TypeError):
        # A class in C.
        return frozenset(vars(base))
    return frozenset(own_names(tree.body[0]) | set(vars(base)))  # type: ignore[arg-type]


def inherited_names(path: Path) -> Iterator[str]:
    """Yield the names that the classes of a module share with a base class of another package."""
    declared = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    dotted = name_of(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    module = import_module(dotted) if declared else None
    for node in declared:
        for base in getattr(module, node.name).__mro__[1:]:
            yield from own_names(node) & foreign_names(base)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("connection._protocol.abort()", {"_protocol"}),
        ("handler._headers = {}", {"_headers"}),
        ("del self.request._body_future", {"_body_future"}),
        ("getattr(connection, '_protocol', None)", {"_protocol"}),
        ("from tornado.web import _HandlerDelegate", {"_HandlerDelegate"}),
        ("from asyncpg.exceptions._base import DataError", {"_base"}),
        ("self._own; cls._own; super()._own; own._own()._other", {"_own", "_other"}),
        ("self._own; cls._own; super()._own; found.__name__", set()),
    ],
)
def test_private_names_of_other_objects_are_found(code: str, names: set[str]) -> None:
    assert {name for name in names_of_others(ast.walk(ast.parse(code))) if is_private(name)} == names


@pytest.mark.parametrize(
    "body", ["def _execute(self): ...", "_finished = True", "def get(self): self._finished = True", "_ui_module: int"]
)
def test_private_names_of_a_base_class_are_found(body: str) -> None:
    (declared,) = ast.parse(f"class Own:\n    {body}").body
    assert isinstance(declared, ast.ClassDef)
    assert own_names(declared) & foreign_names(RequestHandler)


def test_every_private_part_in_use_is_listed_with_its_modules() -> None:
    found = {(name_of(path), name) for path in modules(*FOLDERS) for name in names_of_others(nodes_of(path))}
    found |= {(name_of(path), name) for path in all_modules() for name in inherited_names(path)}
    used = {(path, name) for path, name in found if is_private(name) and name not in DOCUMENTED}
    listed = {(path, part.name) for part in PARTS if is_private(part.name) for path in part.used_in}
    assert used <= listed, f"in use, and not listed in tests/private_parts.py: {sorted(used - listed)}"
    assert listed <= used, f"listed in tests/private_parts.py, and not in use: {sorted(listed - used)}"


def test_undocumented_parts_are_in_use_where_the_list_says() -> None:
    names = {
        name_of(path): {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}
        | {node.name for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.alias)}
        | {node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        for path in all_modules()
    }
    unused = [
        (path, part.name)
        for part in PARTS
        for path in part.used_in
        if not part.name.startswith("_") and part.name not in names.get(path, ())
    ]
    assert unused == []


# which versions


@pytest.mark.parametrize("package", sorted({part.package for part in PARTS}))
def test_a_package_with_private_parts_is_pinned_to_one_tested_minor_version(package: str) -> None:
    major, minor, _ = version(package).split(".", 2)
    pins = re.findall(rf'"{package}([^a-z;"-]+)[;"]', (ROOT / "setup.py").read_text())
    assert pins == [f">={major}.{minor},<{major}.{int(minor) + 1}"]


# whether they exist


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_listed_part_exists(part: Part) -> None:
    with naming(part):
        owner = part.find_owner()
        is_set_by_methods = isinstance(owner, type) and part.name in foreign_names(owner)
        assert is_set_by_methods or hasattr(owner, part.name), f"there is no {part}"


# what they do

CHECKS: dict[str, Callable[[], Awaitable[None] | None]] = {}


def checks(*names: str) -> Callable[[Callable[[], Awaitable[None] | None]], Callable[[], Awaitable[None] | None]]:
    def listed(check: Callable[[], Awaitable[None] | None]) -> Callable[[], Awaitable[None] | None]:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return listed


class Sink(HTTPConnection):
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(remote_ip="127.0.0.1", protocol="http")
        self.written: list[Any] = []

    def write_headers(self, start_line: Any, headers: HTTPHeaders, chunk: bytes | None = None) -> Future[None]:
        self.written += [start_line.code, dict(headers), chunk]
        return self.write(b"")

    def write(self, chunk: bytes) -> Future[None]:
        self.written += [chunk] if chunk else []
        done: Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def finish(self) -> None:
        self.written.append("end")

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        pass


class Echo(RequestHandler):
    """A handler that records what happens to it."""

    def initialize(self, events: list[object]) -> None:
        self.events = events

    def prepare(self) -> None:
        self.events.append("prepare")

    def data_received(self, chunk: bytes) -> None:
        self.events.append(chunk)

    def body_arrived(self) -> None:
        self.events.append("arrived")

    def post(self, argument: str) -> None:
        self.events.append(argument)
        self.write("answer")


LINE = RequestStartLine("POST", "/a?b=1", "HTTP/1.1")


def make_request(connection: Sink) -> Request:
    server: Any = None
    return Request(connection, server, LINE, Headers({"Host": ["localhost"]}))


async def turns() -> None:
    """Some turns of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def assigned(function: object) -> set[str]:
    """Return the attributes that a method sets on any object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


@checks(f"{HANDLER}._transforms")
async def a_handler_runs_as_its_body_arrives() -> None:
    events: list[object] = []
    sink = Sink()
    request = make_request(sink)
    request.has_body = True
    delegate = HandlerDelegate(Application(), request, Echo, {"events": events}, [b"x"])
    ready = delegate.headers_received(LINE, request.headers)
    assert ready is not None
    await ready
    delegate.data_received(b"body")
    await turns()
    assert events == ["prepare", b"body"]
    delegate.finish()
    await turns()
    assert events == ["prepare", b"body", "arrived", "x"]
    assert sink.written[-2:] == [b"answer", "end"]
    # What tornado's own coroutine sets, and what it asks of a handler.
    assert assigned(RequestHandler._execute) == {"_transforms", "path_args", "path_kwargs"}


@checks("tornado.web.Application.transforms")
def tornados_delegate_sets_nothing_else() -> None:
    """Check what tornado's own delegate uses of requests, handlers and applications: the server's must do the same."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(_HandlerDelegate)))
    used = {ast.unparse(node).removeprefix("self.") for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {name for name in used if "._" in name and not name.startswith("RequestHandler.")}
    assert private == {"request._body_future", "handler._prepared_future", "handler._execute"}
    assert {name for name in used if name.startswith("application.")} == {
        *("application.settings", "application.settings.get", "application.transforms"),
    }


@checks(f"{REQUEST}._start_time", f"{REQUEST}._finish_time")
def a_request_has_what_tornados_constructor_sets() -> None:
    theirs = HTTPServerRequest(start_line=LINE, headers=HTTPHeaders({"Host": "localhost"}), connection=Sink())
    ours = make_request(Sink())
    assert [name for name in vars(theirs) if not hasattr(ours, name)] == []


@checks("tornado.escape.parse_qs_bytes")
def arguments_keep_blank_values() -> None:
    assert parse_qs_bytes("a=1&a=%ff&b=", keep_blank_values=True) == {"a": [b"1", b"\xff"], "b": [b""]}


@checks("tornado.httputil.HTTPHeaders._as_list", "tornado.httputil.HTTPHeaders._combined_cache")
def headers_have_two_attributes() -> None:
    assert vars(HTTPHeaders()) == {"_as_list": {}, "_combined_cache": {}}
    headers = HTTPHeaders({"a-b": "1"})
    headers.add("A-B", "2")
    assert headers._as_list == {"A-B": ["1", "2"]}


async def make_handler() -> tuple[Echo, Sink]:
    connection = Sink()
    handler = Echo(Application(), make_request(connection), events=[])
    handler._transforms = []
    return handler, connection


@checks(f"{HANDLER}._headers", f"{HANDLER}._write_buffer")
async def an_answer_is_its_headers_and_its_buffer() -> None:
    assert assigned(RequestHandler.clear) == {"_headers", "_write_buffer", "_status_code", "_reason"}
    assert {"_status_code", "_reason"} <= assigned(RequestHandler.set_status)
    handler, connection = await make_handler()
    handler._headers = HTTPHeaders({"Content-Length": "2"})
    handler._write_buffer.append(b"ab")
    handler.finish()
    assert connection.written == [200, {"Content-Length": "2"}, b"ab", "end"]


@checks(f"{HANDLER}._headers_written", f"{HANDLER}._finished")
async def a_handler_knows_how_far_its_answer_is() -> None:
    handler, _ = await make_handler()
    states = [(handler._headers_written, handler._finished)]
    await handler.flush()
    states.append((handler._headers_written, handler._finished))
    handler.finish()
    states.append((handler._headers_written, handler._finished))
    assert states == [(False, False), (True, False), (True, True)]


@checks(f"{HANDLER}._auto_finish")
async def a_handler_may_answer_later() -> None:
    class Later(Echo):
        def prepare(self) -> None:
            super().prepare()
            self._auto_finish = False

    events: list[object] = []
    sink = Sink()
    request = make_request(sink)
    delegate = HandlerDelegate(Application(), request, Later, {"events": events}, [b"x"])
    delegate.headers_received(LINE, request.headers)
    await turns()
    assert (events, sink.written) == (["prepare", "x"], [])


@checks(f"{HANDLER}.ui")
async def an_answer_breaks_the_cycle_of_a_handler() -> None:
    assert assigned(RequestHandler._break_cycles) == {"ui"}


@checks("tornado.web.OutputTransform.transform_first_chunk")
async def a_transform_changes_headers_and_body() -> None:
    class Upper(OutputTransform):
        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            headers["X-Finishing"] = str(finishing)
            return status_code, headers, chunk.upper()

    handler, connection = await make_handler()
    handler._headers = HTTPHeaders({"Content-Length": "2"})
    handler._transforms = [Upper(handler.request)]
    handler.finish("ab")
    assert connection.written == [200, {"Content-Length": "2", "X-Finishing": "True"}, b"AB", "end"]


def parameters(name: str) -> list[str]:
    """Return the positional parameters of a method of asyncpg's connection, without `self`."""
    found = inspect.signature(getattr(asyncpg.Connection, name)).parameters.values()
    return [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD][1:]


SIGNATURES = {
    "_execute": ["query", "args", "limit", "timeout"],
    "_executemany": ["query", "args", "timeout", "return_rows", "record_class"],
    "_do_execute": ["query", "executor", "timeout", "retry"],
    "_get_statement": ["query", "timeout"],
    "_get_unique_id": ["prefix"],
    "_cleanup": [],
    "_drop_global_statement_cache": [],
}


@checks(*(f"{DRIVER}.{name}" for name in SIGNATURES))
def overridden_methods_take_the_same_arguments() -> None:
    assert {name: parameters(name) for name in SIGNATURES} == SIGNATURES


@checks("asyncpg.pool.PoolConnectionProxy._con")
def a_proxy_knows_its_connection_until_its_release() -> None:
    connection = SimpleNamespace(_set_proxy=lambda _: None)
    holder: Any = None
    proxy: Any = asyncpg.pool.PoolConnectionProxy(holder, connection)  # type: ignore[arg-type]
    assert proxy._con is connection
    proxy._detach()
    assert proxy._con is None


@checks("asyncpg.exceptions._base")
def a_value_refused_by_the_driver_is_no_error_of_postgresql() -> None:
    assert issubclass(_base.DataError, asyncpg.InterfaceError)
    assert not issubclass(_base.DataError, asyncpg.PostgresError)


@checks("asyncpg.exceptions._base.PostgresMessage.as_dict")
def only_errors_of_postgresql_have_fields() -> None:
    assert "severity_en" not in asyncpg.PostgresError("").as_dict()
    assert not hasattr(asyncpg.InterfaceError(""), "as_dict")


@checks("uvloop.loop.TCPTransport.writelines")
def uvloops_transports_are_not_asyncios() -> None:
    """The server tells them apart by this: only uvloop's `writelines` is flow-controlled in all versions of Python."""
    loop: Any = uvloop.loop
    made = (loop.TCPTransport, loop.UnixTransport)
    assert [issubclass(one, asyncio.Transport) for one in made] == [False, False]


@checks("pypika.terms.Term.get_sql")
def terms_take_the_keyword_arguments_of_their_query() -> None:
    term = Field("a").as_("b")
    assert term.get_sql(quote_char='"', with_alias=True, subquery=True) == '"a" "b"'


@pytest.mark.parametrize("name", CHECKS)
def test_listed_parts_behave_as_the_server_expects(name: str) -> None:
    part = {str(one): one for one in PARTS}[name]
    with naming(part):
        found = CHECKS[name]()
        if inspect.iscoroutine(found):
            asyncio.run(asyncio.wait_for(found, MAX_SECONDS))
