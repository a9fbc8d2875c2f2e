"""A precondition of a plan holds on every route that changes or deletes a row. Clients can only have one by sending
read-only fields. So the tests plan another one for users: they must have the age that the context expects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Context
from querybuild.planning.row_plan import Slot
from querybuild.planning.writes.write_plan import Expected
from server.preparing import typed_writes, writes
from tests.http.conftest import Api
from tests.http.operating import remove, update
from tests.http.people import create_household, document, linked, of, select

AGE = 41
ROWS = """
    SELECT jsonb_build_object('users', (SELECT jsonb_agg(u ORDER BY u.id) FROM users u),
        'computers', (SELECT jsonb_agg(c ORDER BY c.id) FROM computers c),
        'bios', (SELECT jsonb_agg(b ORDER BY b.id) FROM user_bios b))::text
"""


def operations(*listed: Any) -> dict[str, Any]:
    return {"atomic:operations": [*listed]}


WRITES: list[tuple[str, str, Any]] = [
    ("PATCH", "/users/1", document("user", {"first_name": "Other"}, id="1")),
    ("PATCH", "/users/1", document("user", {"first_name": "Other"}, id="1", relationships=linked(group=None))),
    ("PATCH", "/users/1", document("user", id="1", relationships=linked(computers=of("computer", "3")))),
    ("DELETE", "/users/1", None),
    ("PATCH", "/users/1/relationships/group", {"data": None}),
    ("PATCH", "/users/1/relationships/computers", {"data": of("computer", "3")}),
    ("POST", "/users/1/relationships/computers", {"data": of("computer", "3")}),
    ("DELETE", "/users/1/relationships/computers", {"data": of("computer", "1")}),
    ("PATCH", "/computers/1/owner", document("user", {"first_name": "Other"}, id="1")),
    ("DELETE", "/computers/1/owner", None),
    ("POST", "/operations", operations(update("user", {"first_name": "Other"}, id="1"))),
    ("POST", "/operations", operations(*[update("user", {"first_name": "Other"}, id=str(n)) for n in (2, 1)])),
    ("POST", "/operations", operations(remove("user", id="1"))),
]


@pytest.fixture
def expecting(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A server that only changes and deletes users of the age that the context expects."""

    def planned(*arguments: Any) -> PlannedWrite:
        write = plan_write(*arguments)
        if write.plan.resource.type != "user" or write.plan.kind == "create":
            return write
        attribute = write.plan.resource.attribute("age")
        assert attribute is not None
        expected = Expected(attribute, Slot("context", 0))
        plan = msgspec.structs.replace(write.plan, precondition=(*write.plan.precondition, expected))
        return msgspec.structs.replace(write, plan=plan)

    for module in (writes, typed_writes):
        monkeypatch.setattr(module, "plan_write", planned)
    return api


def expect(api: Api, age: int) -> None:
    context = Context(values=(age,))
    api.app.engine.is_open = False
    api.app.engine.context_of = lambda _: context  # type: ignore[method-assign]


@pytest.mark.parametrize(("method", "path", "sent"), WRITES)
async def test_another_value_refuses_the_write(expecting: Api, method: str, path: str, sent: Any) -> None:
    await create_household(expecting)
    await expecting.sql("UPDATE users SET age = $1", AGE)
    before = await select(expecting, ROWS)
    # The second and the third time the form of the write is known.
    for age in (AGE + 1, AGE - 1, 0):
        expect(expecting, age)
        answer = await expecting.request(method, path, sent)
        assert (answer.status, b"read-only" in answer.body) == (422, True), answer.body
        assert await select(expecting, ROWS) == before
    expect(expecting, AGE)
    assert (await expecting.request(method, path, sent)).status in (200, 204)
    assert await select(expecting, ROWS) != before
