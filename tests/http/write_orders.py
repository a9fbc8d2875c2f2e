"""Runs concurrent writes, and each order of them.

What comes in: a server over a separate database, and a few writes. What goes out: the rows and answers of each order,
and those of the concurrent writes, while the test holds a lock."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import msgspec

from tests.http.conftest import Answer, Api
from tests.http.people import document, linked, of, one
from tests.waiting import until

BUSY = 503
DEADLOCK_TIMEOUT = "30ms"
MAX_LOCKED = 2


class Write(msgspec.Struct, frozen=True):
    method: str
    path: str
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} {json.dumps(self.body)}"


class Scene(msgspec.Struct, frozen=True):
    """Rows for many writes. fill: creates them again. tables: those that are compared afterwards. held: rows that the
    test may lock, each as a table with a condition. writes: creates a random write."""

    fill: str
    tables: tuple[str, ...]
    held: tuple[str, ...]
    writes: Callable[[random.Random], Write]


class Outcome(msgspec.Struct, frozen=True):
    """answers: those of each write, in the given order of the writes. rows: those of all tables."""

    answers: tuple[str, ...]
    rows: str


# what can be written


USERS, GROUPS, COMPUTERS, POSTS, BIOS = "1234", "123", "123", "12", "12"
MODES = ("POST", "PATCH", "DELETE")


def some(chance: random.Random, ids: Sequence[str]) -> list[str]:
    return chance.sample(ids, chance.randint(0, min(3, len(ids))))


def maybe(chance: random.Random, type_name: str, ids: Sequence[str]) -> Any:
    chosen = chance.choice([None, *ids])
    return None if chosen is None else one(type_name, chosen)


FIRST = {
    "group": {"1": "1", "2": "1", "3": "2"},
    "user": {"1": "1", "2": "3"},
    "bio": {"1": "1", "2": "2"},
    "owner": {"1": "1", "2": "2"},
}
"""The initial target of each to-one. Most documents of the writes name it."""


def related(chance: random.Random, collection: str, id_text: str, relationship: str, **members: Any) -> Write:
    types = {"group": "group", "user": "user", "bio": "user_bio", "owner": "user"}
    named = chance.choice([FIRST[relationship].get(id_text, "1")] * 2 + ["1", "2"])
    return Write("PATCH", f"/{collection}/{id_text}/{relationship}", document(types[relationship], id=named, **members))


def people_write(chance: random.Random) -> Write:
    pick = chance.choice
    user, group, computer, post, bio = pick(USERS), pick(GROUPS), pick(COMPUTERS), pick(POSTS), pick(BIOS)
    users, computers = of("user", *some(chance, USERS)), of("computer", *some(chance, COMPUTERS))
    to_group, to_owner, to_bio = (
        maybe(chance, "group", GROUPS),
        maybe(chance, "user", USERS),
        maybe(chance, "user_bio", BIOS),
    )
    mark = chance.choice("xyz")
    every: list[Callable[[], Write]] = [
        lambda: Write(pick(MODES), f"/groups/{group}/relationships/users", {"data": users}),
        lambda: Write(pick(MODES), f"/groups/{group}/relationships/users", {"data": users}),
        lambda: Write("PATCH", f"/groups/{group}", document("group", {}, id=group, relationships=linked(users=users))),
        lambda: Write("PATCH", f"/users/{user}/relationships/group", {"data": to_group}),
        lambda: Write("PATCH", f"/users/{user}", document("user", id=user, relationships=linked(group=to_group))),
        lambda: Write(
            "PATCH",
            f"/users/{user}",
            document("user", {"first_name": mark}, id=user, relationships=linked(group=to_group, computers=computers)),
        ),
        lambda: related(chance, "users", user, "group", attributes={"name": f"n{mark}"}),
        lambda: related(chance, "users", user, "group", relationships=linked(users=users)),
        lambda: Write("DELETE", f"/users/{user}/group"),
        lambda: Write("DELETE", f"/posts/{post}/user"),
        lambda: Write("DELETE", f"/users/{user}/bio"),
        lambda: Write("DELETE", f"/computers/{computer}/owner"),
        lambda: Write("PATCH", f"/posts/{post}/relationships/user", {"data": one("user", pick(USERS))}),
        lambda: related(chance, "posts", post, "user", attributes={"first_name": mark}),
        lambda: related(chance, "posts", post, "user", relationships=linked(computers=computers)),
        lambda: related(chance, "posts", post, "user", relationships=linked(bio=to_bio)),
        lambda: related(chance, "users", user, "bio", attributes={"birth_city": mark}),
        lambda: related(chance, "users", user, "bio", relationships=linked(user=one("user", pick(USERS)))),
        lambda: Write("PATCH", f"/users/{user}/relationships/bio", {"data": to_bio}),
        lambda: Write("PATCH", f"/user-bio/{bio}/relationships/user", {"data": one("user", pick(USERS))}),
        lambda: Write(pick(MODES), f"/users/{user}/relationships/computers", {"data": computers}),
        lambda: Write("PATCH", f"/computers/{computer}/relationships/owner", {"data": to_owner}),
        lambda: related(chance, "computers", computer, "owner", relationships=linked(group=to_group)),
        lambda: related(chance, "computers", computer, "owner", relationships=linked(computers=computers)),
        lambda: Write("POST", f"/groups/{group}/users", document("user", {"first_name": mark, "last_name": mark})),
        lambda: Write(
            "POST",
            "/users",
            document(
                "user",
                {"first_name": mark, "last_name": mark},
                relationships=linked(group=to_group, computers=computers),
            ),
        ),
        lambda: Write("POST", "/groups", document("group", {"name": f"n{mark}"}, relationships=linked(users=users))),
        lambda: Write("DELETE", pick([f"/users/{user}", f"/groups/{group}", f"/computers/{computer}"])),
        lambda: operations(chance, people_operation),
        lambda: operations(chance, people_operation),
        lambda: operations(chance, people_operation),
    ]
    return pick(every)()


def operations(chance: random.Random, operation: Callable[[random.Random], Any]) -> Write:
    sent = [operation(chance) for _ in range(chance.randint(1, 3))]
    return Write("POST", "/operations", {"atomic:operations": sent})


def people_operation(chance: random.Random) -> Any:
    pick = chance.choice
    user, group = pick(USERS), pick(GROUPS)
    users, computers = of("user", *some(chance, USERS)), of("computer", *some(chance, COMPUTERS))
    of_group = linked(group=maybe(chance, "group", GROUPS))
    new = document("user", {"first_name": "o", "last_name": "o"}, relationships=of_group)["data"]
    return pick(
        [
            {"op": "update", "data": document("group", id=group, relationships=linked(users=users))["data"]},
            {"op": "update", "data": document("user", id=user, relationships=of_group)["data"]},
            {"op": "update", "data": document("user", id=user, relationships=linked(computers=computers))["data"]},
            {"op": pick(("add", "update", "remove")), "ref": to("group", group, "users"), "data": users},
            {"op": "update", "ref": to("user", user, "group"), "data": maybe(chance, "group", GROUPS)},
            {"op": "add", "data": new},
            {"op": "remove", "ref": one("user", user)},
        ]
    )


def to(type_name: str, id_text: str, relationship: str) -> dict[str, str]:
    return {"type": type_name, "id": id_text, "relationship": relationship}


PEOPLE = Scene(
    fill="""
    TRUNCATE groups, users, computers, posts, user_bios RESTART IDENTITY;
    INSERT INTO groups (name) VALUES ('g1'), ('g2'), ('g3');
    INSERT INTO users (first_name, last_name, group_id) VALUES
        ('a', 'a', 1), ('b', 'b', 1), ('c', 'c', 2), ('d', 'd', NULL);
    INSERT INTO computers (name, owner_id) VALUES ('k', 1), ('l', 2), ('m', NULL);
    INSERT INTO posts (title, body, user_id) VALUES ('s', 's', 1), ('t', 't', 3);
    INSERT INTO user_bios (birth_city, user_id) VALUES ('u', 1), ('v', 2);
    ALTER SEQUENCE groups_id_seq RESTART 1000;
    ALTER SEQUENCE users_id_seq RESTART 1000;
    """,
    tables=("groups", "users", "computers", "posts", "user_bios"),
    held=(
        *(f"users WHERE id = {number}" for number in USERS),
        *(f"groups WHERE id = {number}" for number in GROUPS),
        "computers WHERE id = 1",
        "posts WHERE id = 1",
        "user_bios WHERE id = 1",
    ),
    writes=people_write,
)

ARTICLES, TAGS, NODES = "abc", "123", tuple(f"00000000-0000-0000-0000-00000000000{digit}" for digit in "123")


def corner_write(chance: random.Random) -> Write:
    pick = chance.choice
    article, tag, node, author = pick(ARTICLES), pick(TAGS), pick(NODES), pick("12")
    articles, tags = of("article", *some(chance, ARTICLES)), of("tag", *some(chance, TAGS))
    mark = pick("xyz")
    every: list[Callable[[], Write]] = [
        lambda: Write(pick(MODES), f"/articles/{article}/relationships/tags", {"data": tags}),
        lambda: Write(pick(MODES), f"/tags/{tag}/relationships/articles", {"data": articles}),
        lambda: Write("PATCH", f"/articles/{article}/relationships/tags", {"data": tags}),
        lambda: Write("PATCH", f"/tags/{tag}/relationships/articles", {"data": articles}),
        lambda: Write("POST", f"/articles/{article}/tags", document("tag", {"name": f"n{mark}"})),
        lambda: Write("POST", "/tags", document("tag", {"name": f"n{mark}"}, relationships=linked(articles=articles))),
        lambda: Write("DELETE", pick([f"/articles/{article}", f"/tags/{tag}"])),
        lambda: Write(pick(MODES), f"/authors/{author}/relationships/edited", {"data": articles}),
        lambda: Write("PATCH", f"/articles/{article}/relationships/editor", {"data": maybe(chance, "author", "12")}),
        lambda: Write(pick(MODES), f"/nodes/{node}/relationships/children", {"data": of("node", *some(chance, NODES))}),
        lambda: Write("PATCH", f"/nodes/{node}/relationships/parent", {"data": maybe(chance, "node", NODES)}),
        lambda: Write("DELETE", f"/nodes/{node}/parent"),
        lambda: operations(chance, corner_operation),
        lambda: operations(chance, corner_operation),
    ]
    return pick(every)()


def corner_operation(chance: random.Random) -> Any:
    pick = chance.choice
    ops = ("add", "update", "remove")
    articles, tags = of("article", *some(chance, ARTICLES)), of("tag", *some(chance, TAGS))
    return pick(
        [
            {"op": pick(ops), "ref": to("article", pick(ARTICLES), "tags"), "data": tags},
            {"op": pick(ops), "ref": to("tag", pick(TAGS), "articles"), "data": articles},
            {"op": pick(ops), "ref": to("author", pick("12"), "edited"), "data": articles},
            {"op": "update", "ref": to("article", pick(ARTICLES), "editor"), "data": maybe(chance, "author", "12")},
        ]
    )


CORNER = Scene(
    fill=f"""
    TRUNCATE authors, corner.articles, tags, corner.article_tags, corner.nodes RESTART IDENTITY CASCADE;
    INSERT INTO authors (given, family) VALUES ('a', 'a'), ('b', 'b');
    INSERT INTO corner.articles (id, title, author_id, editor_id) VALUES
        ('a', 't', 1, 1), ('b', 't', 1, 2), ('c', 't', 2, NULL);
    INSERT INTO tags (name) VALUES ('x'), ('y'), ('z');
    INSERT INTO corner.article_tags VALUES ('a', 1), ('a', 2), ('b', 2);
    INSERT INTO corner.nodes (id, "Mixed Case", parent_id) VALUES
        ('{NODES[0]}', 'n', NULL), ('{NODES[1]}', 'n', '{NODES[0]}'), ('{NODES[2]}', 'n', NULL);
    ALTER SEQUENCE tags_id_seq RESTART 1000;
    """,
    tables=("authors", "corner.articles", "tags", "corner.article_tags", "corner.nodes"),
    held=(
        *(f"corner.articles WHERE id = '{id_text}'" for id_text in ARTICLES),
        *(f"tags WHERE id = {number}" for number in TAGS),
        "corner.article_tags WHERE article_id = 'a' AND tag_id = 2",
        *(f"corner.nodes WHERE id = '{id_text}'" for id_text in NODES),
        "authors WHERE author_no = 1",
    ),
    writes=corner_write,
)


# running them


async def fast_deadlocks(api: Api) -> None:
    """Let PostgreSQL look for deadlocks sooner than after one second, if the role of the tests may set this."""
    try:
        await api.sql(
            "DO $$ BEGIN EXECUTE format("
            f"'ALTER DATABASE %I SET deadlock_timeout = ''{DEADLOCK_TIMEOUT}''', current_database()); END $$"
        )
    except asyncpg.InsufficientPrivilegeError:
        return


class Stage:
    """A server, and a connection that fills and reads its database."""

    def __init__(
        self, api: Api, scene: Scene, own: asyncpg.Connection[Any], holders: Sequence[asyncpg.Connection[Any]]
    ) -> None:
        self._api = api
        self._scene = scene
        self._own = own
        self._holders = holders
        names = " UNION ALL ".join(f"SELECT '{table}', to_jsonb(t)::text FROM {table} t" for table in scene.tables)
        self._rows = f"SELECT * FROM ({names}) r (name, row) ORDER BY 1, 2"

    @classmethod
    async def open(cls, api: Api, scene: Scene) -> Stage:
        await fast_deadlocks(api)
        own, *holders = [await asyncpg.connect(api.database_url) for _ in range(1 + MAX_LOCKED)]
        return cls(api, scene, own, holders)

    async def close(self) -> None:
        for connection in (self._own, *self._holders):
            await connection.close()

    async def run_concurrently(self, writes: Sequence[Write], *held: str) -> Outcome:
        """Run the writes concurrently. Each one begins when the one before it waits for a lock or has ended. Then the
        locks are released one by one, each when all writes wait again."""
        await self._own.execute(self._scene.fill)
        begun: list[asyncio.Task[Answer]] = []
        holders = self._holders[: len(held)]
        try:
            for holder, row in zip(holders, held, strict=True):
                await holder.execute(f"BEGIN; SELECT FROM {row} FOR UPDATE")
            for write in writes:
                begun.append(asyncio.ensure_future(self._send(write)))
                await until(lambda: self._is_still(begun))
        finally:
            for holder in holders:
                await holder.execute("ROLLBACK")
                await until(lambda: self._is_still(begun))
        return await self._outcome(await asyncio.gather(*begun))

    async def orders(self, writes: Sequence[Write], but: frozenset[int] = frozenset()) -> list[Outcome]:
        """Return the outcome of each order. but: writes that had no effect."""
        done = [place for place in range(len(writes)) if place not in but]
        return [await self._one_by_one(writes, order, but) for order in itertools.permutations(done)]

    async def _one_by_one(self, writes: Sequence[Write], order: Sequence[int], but: frozenset[int]) -> Outcome:
        await self._own.execute(self._scene.fill)
        answers = dict.fromkeys(but, f"{BUSY}")
        for place in order:
            answers[place] = _shown(await self._send(writes[place]))
        return Outcome(tuple(answers[place] for place in range(len(writes))), await self._left())

    async def _is_still(self, begun: Sequence[asyncio.Task[Answer]]) -> bool:
        waiting = await self._own.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(waiting >= sum(not task.done() for task in begun))

    async def _send(self, write: Write) -> Answer:
        headers = {"Content-Type": 'application/vnd.api+json;ext="https://jsonapi.org/ext/atomic"'}
        return await self._api.request(
            write.method, write.path, write.body, headers=headers if write.path == "/operations" else None
        )

    async def _outcome(self, answers: Sequence[Answer]) -> Outcome:
        return Outcome(tuple(_shown(answer) for answer in answers), await self._left())

    async def _left(self) -> str:
        rows = await self._own.fetch(self._rows)
        return "\n".join(sorted(_without_new_ids(f"{row['name']} {row['row']}") for row in rows))


def _shown(answer: Answer) -> str:
    """Return the status and document; if the server was busy, only that."""
    if answer.status == BUSY:
        return f"{BUSY}"
    if answer.status >= 400:
        return f"{answer.status} {[(error['code'], error.get('source')) for error in answer.errors]}"
    return f"{answer.status} {_without_new_ids(answer.body.decode())}"


def _without_new_ids(text: str) -> str:
    """Return the text without new ids, because a retried transaction takes further ids from a sequence."""
    return re.sub(r"\b1\d\d\d\b", "new", text)


async def check(stage: Stage, writes: Sequence[Write], *held: str) -> Outcome:
    """Check that the rows and answers of the concurrent writes are those of one of their orders."""
    found = await stage.run_concurrently(writes, *held)
    busy = frozenset(place for place, answer in enumerate(found.answers) if answer == f"{BUSY}")
    serial = await stage.orders(writes, busy)
    told = "\n".join(map(str, writes))
    orders = "\n--\n".join(map(_text, serial))
    assert found in serial, f"held {' and '.join(held)}\n{told}\nat once:\n{_text(found)}\nin the orders:\n{orders}"
    return found


def _text(outcome: Outcome) -> str:
    return "\n".join([*outcome.answers, outcome.rows])
