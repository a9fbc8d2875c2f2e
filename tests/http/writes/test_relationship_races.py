"""Section 6, isolation: concurrent writes of one relationship have the result of some order of them, wherever the key
is, and none of them is a fault."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import pytest

from tests import composite
from tests.conftest import on_server
from tests.http.conftest import Api, Serve
from tests.http.people import document, of, one
from tests.http.writes.test_relationships import (
    CHILDREN,
    EDITED,
    TAGGED,
    TAGS,
    Kind,
    Pairs,
    after,
    corners,
    fill,
    linkage,
)

__all__ = ["corners"]

ROUNDS = 20
ROUNDS_OF_EIGHT = 8
ROUNDS_WITH_DEADLOCKS = 3
"""PostgreSQL needs a second to detect each deadlock."""
METHODS = ("POST", "PATCH", "DELETE")


class Write(msgspec.Struct, frozen=True):
    """A request, and the model of its effect on the pairs (owner, target)."""

    method: str
    path: str
    document: Any
    leaves: Callable[[Pairs], Pairs]


def write(kind: Kind, owner: str, method: str, ids: Sequence[str], *, is_turned: bool = False) -> Write:
    """is_turned: the relationship is seen from its other side, but the pairs of the model are not reversed."""

    def leaves(pairs: Pairs) -> Pairs:
        return (
            turned(after(kind, turned(pairs), owner, method, ids))
            if is_turned
            else after(kind, pairs, owner, method, ids)
        )

    path = msgspec.structs.replace(kind, owner=owner).route
    return Write(method, path, linkage(of(kind.target, *ids)), leaves)


def turned(pairs: Pairs) -> Pairs:
    return {(target, owner) for owner, target in pairs}


def outcomes(pairs: Pairs, writes: Sequence[Write]) -> set[frozenset[tuple[str, str]]]:
    """Return the result of each order of the writes."""
    reached = {(frozenset(pairs), frozenset(range(len(writes))))}
    for _ in writes:
        reached = {
            (frozenset(writes[place].leaves(set(state))), left - {place}) for state, left in reached for place in left
        }
    return {state for state, _ in reached}


class Writes(Protocol):
    async def pairs(self, api: Api) -> Pairs: ...


async def check_race(
    api: Api, kind: Writes, writes: Sequence[Write], left: Counter[str], *, may_be_busy: bool = False
) -> None:
    """Check that concurrent writes have the result of one of their orders. may_be_busy: if rows are both owners and
    targets, there may be three deadlocks in a row. Such a write must have changed nothing."""
    before = await kind.pairs(api)
    answers = await asyncio.gather(*(api.request(each.method, each.path, each.document) for each in writes))
    assert {answer.status for answer in answers} <= ({200, 503} if may_be_busy else {200}), [
        answer.body for answer in answers
    ]
    done = [each for each, answer in zip(writes, answers, strict=True) if answer.status == 200]
    found = await kind.pairs(api)
    told = [(each.method, each.path, each.document) for each in done]
    assert frozenset(found) in outcomes(before, done), (before, told, found)
    left[str(sorted(found))] += 1


KINDS = [EDITED, CHILDREN, TAGS, TAGGED]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_two_clients(corners: Api, kind: Kind) -> None:
    """Each two methods, from any initial links."""
    await fill(corners)
    chance = random.Random(kind.name)
    for methods in itertools.combinations_with_replacement(METHODS, 2):
        left = Counter[str]()
        for _ in range(ROUNDS):
            some = of(kind.target, *chance.sample(kind.ids, chance.randint(1, 4)))
            assert (await corners.patch(kind.route, linkage(some))).status == 200
            writes = [write(kind, kind.owner, method, chance.sample(kind.ids, 2)) for method in methods]
            await check_race(corners, kind, writes, left)
        assert len(left) > 1, methods


OWNERS = {
    "edited": ("1", "2", "3"),
    "children": (CHILDREN.owner, *CHILDREN.ids[:2]),
    "tags": ("a", "b", "d"),
    "articles": ("1", "2", "3"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_eight_clients_of_several_owners(corners: Api, kind: Kind) -> None:
    """They take the same targets from each other, in any order."""
    await fill(corners)
    chance, left = random.Random(kind.name), Counter[str]()
    for _ in range(ROUNDS_WITH_DEADLOCKS if kind is CHILDREN else ROUNDS_OF_EIGHT):
        writes = [
            write(kind, chance.choice(OWNERS[kind.name]), chance.choice(METHODS), chance.sample(kind.ids, 3))
            for _ in range(8)
        ]
        await check_race(corners, kind, writes, left, may_be_busy=kind is CHILDREN)
    assert len(left) > 1


LINES, LABELS = ("1,milk", "1,tea", "2,milk", "2,tea"), ("a\\,t,x", "a\\,t,y", "b,x", "b,y")
LABELLED = "SELECT order_id || ',' || product, replace(country, ',', '\\,') || ',' || code FROM shop.line_labels"
RETURNED = "SELECT order_id || ',' || product, id::text FROM shop.returns WHERE product IS NOT NULL"
COMPOSITE = [
    (Kind("/lines", LINES[0], "returns", "return", ("1", "2", "3", "4"), RETURNED, True), LINES),
    (Kind("/lines", LINES[0], "labels", "label", LABELS, LABELLED, False), LINES),
    (Kind("/labels", LABELS[0], "lines", "line", LINES, f"SELECT b, a FROM ({LABELLED}) l (a, b)", False), LABELS),
]


@pytest.fixture
def shop(serve: Serve, database_url: str) -> Api:
    on_server(
        database_url,
        composite.DDL,
        "INSERT INTO shop.orders (name) VALUES ('o'), ('p')",
        "INSERT INTO shop.lines SELECT o, p FROM unnest(ARRAY[2, 1]) o, unnest(ARRAY['tea', 'milk']) p",
        "INSERT INTO shop.labels SELECT c, d, '' FROM unnest(ARRAY['b', 'a,t']) c, unnest(ARRAY['y', 'x']) d",
        "INSERT INTO shop.returns (reason) SELECT '' FROM generate_series(1, 4)",
    )
    return serve(database_url, composite.FREE_RETURNS)


@pytest.mark.parametrize(("kind", "owners"), COMPOSITE, ids=["key", "link table", "its other side"])
async def test_eight_clients_of_keys_of_several_columns(shop: Api, kind: Kind, owners: tuple[str, ...]) -> None:
    chance, left = random.Random(kind.name), Counter[str]()
    for _ in range(ROUNDS_OF_EIGHT):
        writes = [
            write(kind, chance.choice(owners), chance.choice(METHODS), chance.sample(kind.ids, 3)) for _ in range(8)
        ]
        await check_race(shop, kind, writes, left)
    assert len(left) > 1


async def test_two_clients_on_the_two_sides_of_a_link_table(corners: Api) -> None:
    await fill(corners)
    chance, left = random.Random("sides"), Counter[str]()
    for _ in range(ROUNDS):
        writes = [
            write(TAGS, "a", chance.choice(METHODS), chance.sample(TAGS.ids, 2)),
            write(TAGGED, "1", chance.choice(METHODS), chance.sample(TAGGED.ids, 2), is_turned=True),
        ]
        await check_race(corners, TAGS, writes, left, may_be_busy=True)
    assert len(left) > 1


# to-one


class Single(msgspec.Struct, frozen=True):
    """A to-one that all `owners` write concurrently. links: its pairs (owner, target) as texts."""

    path: str
    name: str
    target: str
    owners: tuple[str, ...]
    ids: tuple[str, ...]
    links: str
    is_exclusive: bool

    def write(self, owner: str, sent: str | None) -> Write:
        def leaves(pairs: Pairs) -> Pairs:
            kept = {pair for pair in pairs if pair[0] != owner and not (self.is_exclusive and pair[1] == sent)}
            return kept if sent is None else kept | {(owner, sent)}

        data = None if sent is None else one(self.target, sent)
        return Write("PATCH", f"{self.path}/{owner}/relationships/{self.name}", linkage(data), leaves)

    async def pairs(self, api: Api) -> Pairs:
        return {(row[0], row[1]) for row in await api.sql(self.links)}


SINGLES = [
    Single(
        "/articles",
        "editor",
        "author",
        ("a", "b"),
        ("1", "2", "3"),
        "SELECT id, editor_id::text FROM corner.articles WHERE editor_id IS NOT NULL",
        False,
    ),
    Single(
        "/nodes",
        "parent",
        "node",
        CHILDREN.ids,
        CHILDREN.ids,
        "SELECT id::text, parent_id::text FROM corner.nodes WHERE parent_id IS NOT NULL",
        False,
    ),
    Single(
        "/authors",
        "desk",
        "desk",
        ("1", "2", "3"),
        ("1", "2", "3"),
        "SELECT author_no::text, id::text FROM corner.desks WHERE author_no IS NOT NULL",
        True,
    ),
]


RETURNED_TO = Single(
    "/returns", "line", "line", ("1", "2", "3"), LINES, f"SELECT b, a FROM ({RETURNED}) r (a, b)", False
)


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("single", SINGLES, ids=lambda single: single.name)
async def test_a_to_one(corners: Api, single: Single, count: int) -> None:
    await fill(corners)
    await race_of_to_one(corners, single, count)


async def test_a_to_one_of_several_columns(shop: Api) -> None:
    await race_of_to_one(shop, RETURNED_TO, 8)


async def race_of_to_one(api: Api, single: Single, count: int) -> None:
    chance, left = random.Random(f"{single.name} {count}"), Counter[str]()
    for _ in range(ROUNDS if count == 2 else ROUNDS_OF_EIGHT):
        writes = [single.write(chance.choice(single.owners), chance.choice((None, *single.ids))) for _ in range(count)]
        await check_race(api, single, writes, left)
    assert len(left) > 1


async def test_a_required_reverse_to_one(corners: Api) -> None:
    """Authors 1 and 2 have a profile, and 3 takes one. A write that comes too late is refused, and its author keeps the
    old profile."""
    await fill(corners)
    profiles = "SELECT id, author_no FROM corner.profiles ORDER BY id"
    left, refusals = set(), set()
    for number in range(ROUNDS):
        takers = [(author, "1" if number % 2 else "2") for author in ("1", "2", "3")]
        requests = [
            corners.patch(f"/authors/{author}/relationships/profile", linkage(one("profile", id_text)))
            for author, id_text in takers
        ]
        answers = await asyncio.gather(*requests)
        assert {answer.status for answer in answers} <= {200, 403}, [answer.body for answer in answers]
        refusals |= {error["code"] for answer in answers if answer.status == 403 for error in answer.errors}
        rows = [tuple(row) for row in await corners.sql(profiles)]
        assert len(rows) == 2
        assert None not in {author for _, author in rows}
        left.add(tuple(rows))
    assert len(left) > 1
    assert refusals == {"required_link"}


# related routes


async def test_creates_below_one_owner_while_it_is_deleted(api: Api) -> None:
    """A create after the delete does not find the owner. No post is left without a user."""
    post = document("post", {"title": "t", "body": "b"})
    for _ in range(ROUNDS):
        user = await api.create("/users", "user", {"first_name": "Cy", "last_name": "Byron"})
        path = f"/users/{user}/posts"
        assert (await api.post(path, post)).status == 201
        answers = await asyncio.gather(api.post(path, post), api.delete(f"/users/{user}"), api.post(path, post))
        assert answers[1].status == 200
        assert {answers[0].status, answers[2].status} <= {201, 404}, [answer.body for answer in answers]
        assert (await api.get(path)).status == 404
    assert await api.sql("SELECT FROM posts") == []


async def test_creates_below_one_owner_while_its_links_are_replaced(corners: Api) -> None:
    """The new tag is either linked, or was removed by the replacement. It exists in both cases."""
    await fill(corners)
    for number in range(ROUNDS):
        sent = document("tag", {"name": f"n{number}"})
        replaced = corners.patch("/articles/a/relationships/tags", linkage(of("tag", "1")))
        answers = await asyncio.gather(corners.post("/articles/a/tags", sent), replaced)
        assert [answer.status for answer in answers] == [201, 200]
        made = answers[0].document["data"]["id"]
        linked_now = {tag for article, tag in await TAGS.pairs(corners) if article == "a"}
        assert linked_now in ({"1"}, {"1", made})
    assert len(await corners.sql("SELECT FROM tags")) == 4 + ROUNDS
