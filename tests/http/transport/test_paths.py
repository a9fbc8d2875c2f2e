"""All spellings of a path have the same handler: a custom route that guards a resource cannot be bypassed, and logs,
links and CORS use one spelling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tornado.ioloop import IOLoop

from querybuild.declarations.catalog import Catalog
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Servers, Start
from tests.http.wire import connected
from waterspout import CustomHandler

ROUTES = (
    *("/", "/operations", "/users", "/users/1", "/users/1/group", "/users/1/computers", "/users/99"),
    *("/users/1/relationships/group", "/groups/1/relationships/users", "/-/live", "/user-bio/1"),
)


class Guard(CustomHandler):
    """Returns its arguments."""

    def get(self, *groups: str) -> None:
        self.finish({"guard": groups, "path": self.request.path})

    post = put = patch = delete = get


async def raw(api: Api, target: bytes, method: bytes = b"GET", *lines: bytes) -> Answer:
    head = b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: localhost", *lines, b"", b""])
    async with connected(api.port) as wire:
        await wire.send_bytes(head)
        return await wire.answer()


@pytest.fixture
def guarded(io_loop: IOLoop, start: Start, rows_url: str) -> Api:
    routes = [("/operations", Guard), ("/users/([0-9]+)", Guard), ("/é/(.+)", Guard), ("/b%C3%A9/(.+)/", Guard)]
    return io_loop.run_sync(lambda: start(rows_url, built_in(), routes))


@pytest.mark.parametrize(
    ("method", "target", "guard", "path"),
    [
        ("POST", "/operations", [], "/operations"),
        ("POST", "/operations/", [], "/operations"),
        ("POST", "http://localhost/operations", [], "/operations"),
        ("POST", "HTTP://localhost:80/%6Fperations/?x", [], "/operations"),
        ("POST", "/%6f%70erations", [], "/operations"),
        ("GET", "/users/1/", ["1"], "/users/1"),
        ("GET", "/users/%31", ["1"], "/users/1"),
        ("GET", "/%75sers/%31%30/", ["10"], "/users/10"),
        ("DELETE", "http://localhost/users/%31/", ["1"], "/users/1"),
        # text
        ("GET", "/\xc3\xa9/a", ["a"], "/%C3%A9/a"),
        ("GET", "/%C3%A9/a", ["a"], "/%C3%A9/a"),
        ("GET", "/%c3%a9/%C3%9f%2F%25%20", ["ß/% "], "/%C3%A9/%C3%9F%2F%25%20"),
        ("GET", "/%C3%A9/a%0Ab", ["a\nb"], "/%C3%A9/a%0Ab"),
        ("GET", "/b\xc3%a9/:", [":"], "/b%C3%A9/%3A"),
    ],
)
async def test_a_custom_route_cannot_be_bypassed_by_another_spelling(
    guarded: Api, method: str, target: str, guard: list[str], path: str
) -> None:
    answer = await raw(guarded, target.encode("latin-1"), method.encode())
    assert (answer.status, answer.document) == (200, {"guard": guard, "path": path})


@pytest.mark.parametrize(
    "target",
    [
        *(b"/users/../operations", b"/users/%2e%2e/operations", b"/./operations", b"/%2E/operations", b"/operations/."),
        *(b"/users/1/.", b"/users/1/..", b"/users/./1", b"/users/.%2e/users/1", b"/..", b"/."),
        *(b"//operations", b"/operations//", b"/users//1", b"//users/1", b"http://localhost//users/1"),
        *(b"/users%2F1", b"/users%2f1", b"/users\\1", b"/users/1%2F", b"/users/1%00", b"/USERS/1"),
    ],
)
async def test_paths_that_are_not_equivalent_are_not_found(guarded: Api, target: bytes) -> None:
    answer = await raw(guarded, target)
    assert (answer.status, [error["status"] for error in answer.errors]) == (404, ["404"])


@pytest.mark.parametrize("id_text", ["01", "+1", "%201", "1%20", "1_0", "1.0", "1e0", "0x1", "%EF%BC%91", "%D9%A1"])
async def test_a_number_has_one_spelling(reader: Api, id_text: str) -> None:
    """So a guard at /users/([0-9]+) sees all requests."""
    assert (await reader.get(f"/users/{id_text}")).status == 404


@pytest.mark.parametrize(
    ("target", "own"),
    [
        (b"/%75sers/%31/", "/users/1"),
        (b"http://localhost/users/1/%67roup", "/users/1/group"),
        (b"/users/1/%72elationships/group/", "/users/1/relationships/group"),
        (b"/%67roups/?page%5bsize%5d=1", "/groups?page%5Bsize%5D=1"),
    ],
)
async def test_links_name_the_canonical_path(reader: Api, target: bytes, own: str) -> None:
    answer = await raw(reader, target)
    assert (answer.status, answer.document["links"]["self"]) == (200, own)


@pytest.mark.parametrize("target", [b"/-/%6Cive", b"/-/live/", b"/%2d/live", b"http://localhost/-/live"])
async def test_health_by_another_spelling(reader: Api, target: bytes) -> None:
    assert (await raw(reader, target)).status == 200


# any spelling


def spelled(draw: Any, path: str) -> bytes:
    """Return spellings of a path: each character as it is or percent-encoded, with or without a slash at the end, in
    origin-form or absolute-form."""
    pieces = [path[:1]]
    for character in path[1:]:
        hexed = f"%{ord(character):02X}"
        choices = [character] if character == "/" else [character, character, hexed, hexed.lower()]
        pieces.append(draw(st.sampled_from(choices)))
    end = draw(st.sampled_from(["", "/"])) if path != "/" else ""
    begin = draw(st.sampled_from(["", "http://localhost", "HTTPS://LOCALHOST:8080"]))
    return "".join([begin, *pieces, end]).encode()


class Spelling:
    """A server in the event loop of the module, so that hypothesis can send many requests."""

    def __init__(self, url: str, routes: list[tuple[str, type[CustomHandler]]]) -> None:
        self.loop = IOLoop(make_current=False)
        self.servers = Servers()
        self.api = self.loop.run_sync(lambda: self.servers.start(url, Catalog(list(built_in())), routes))

    def ask(self, target: bytes) -> tuple[int, Any]:
        answer = self.loop.run_sync(lambda: raw(self.api, target, b"GET", f"Accept: {MEDIA_TYPE}".encode()))
        document = answer.document
        for error in document.get("errors", ()):
            del error["id"]
        return answer.status, document

    def close(self) -> None:
        self.loop.run_sync(self.servers.stop)
        self.loop.close()


@pytest.fixture(scope="module", params=["without guards", "with guards"])
def spelling(request: pytest.FixtureRequest, rows_url: str) -> Iterator[Spelling]:
    guards = [(path, Guard) for path in ROUTES] if request.param == "with guards" else []
    made = Spelling(rows_url, guards)
    yield made
    made.close()


@given(data=st.data(), path=st.sampled_from(ROUTES))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_spelling_reaches_the_same_handler(spelling: Spelling, data: st.DataObject, path: str) -> None:
    assert spelling.ask(data.draw(st.composite(spelled)(path))) == spelling.ask(path.encode())
