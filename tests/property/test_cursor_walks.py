"""A walk by cursors visits each row that stays exactly once and in order, whatever is added or deleted between the
pages: forwards and backwards, in lists, related collections and linkage, with nulls and with keys of both
directions."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.resources import built_in
from tests.property.served import Answer, Served, served

SORTS = (
    "",
    "-id",
    "age",
    "-age",
    "last_name",
    "last_name,-age",
    "-last_name,age",
    "age,birth_date",
    "-age,birth_date,-last_name",
    "-birth_date,-age",
    "display_name",
    "group.name,-age",
    "-group.name,age",
    "-count(computers),last_name",
    "count(posts),-count(computers)",
)
PLACES = ("/users", "/groups/1/users", "/groups/1/relationships/users")
ADD = "INSERT INTO users (first_name, last_name, age, birth_date, group_id) VALUES ('F', $1, $2, $3::text::date, $4)"

CHANGE = "UPDATE users SET words = array_append(words, 'x') WHERE id = $1"


class User(msgspec.Struct, frozen=True):
    """A user. The attributes have few values, so that many rows are equal in a sort key."""

    last_name: str
    age: int | None
    birth_date: str | None
    group_id: int | None

    @property
    def values(self) -> tuple[object, ...]:
        return (self.last_name, self.age, self.birth_date, self.group_id)


class Turn(msgspec.Struct, frozen=True):
    """The changes between two pages. leaving, changed: positions in the list of all ids, modulo its length."""

    coming: list[User]
    leaving: list[int]
    changed: list[int]


USERS = st.builds(
    User,
    st.sampled_from("ab"),
    st.sampled_from((None, None, 1, 2)),
    st.sampled_from((None, "2001-02-03", "2002-03-04")),
    st.sampled_from((None, 1, 1, 2)),
)
PLACE = st.integers(0, 99)
TURNS = st.builds(Turn, st.lists(USERS, max_size=2), st.lists(PLACE, max_size=2), st.lists(PLACE, max_size=1))


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, built_in()) as running:
        yield running


class Walk:
    """One example: the pages to read, and the changes so far."""

    def __init__(self, server: Served, path: str, pairs: list[tuple[str, str]], turns: list[Turn]) -> None:
        self._server, self._path, self._pairs, self._turns = server, path, pairs, turns
        self._gone: set[str] = set()

    def all_ids(self) -> list[str]:
        return self._get(self._path, [*self._pairs, ("page[size]", "10000")]).ids

    def begin(self, size: int) -> Answer:
        return self._get(self._path, [*self._pairs, ("page[size]", str(size)), ("page[after]", "")])

    def follow(self, answer: Answer, way: str) -> tuple[list[str], Answer]:
        """Follow a link from an answer to the last page. Return the ids of all pages, and the last page."""
        visited = answer.ids
        while way in (links := answer.document["links"]):
            if self._turns:
                self._happen(self._turns.pop())
            url = urlsplit(links[way])
            pairs = [tuple(map(unquote, pair.split("=", 1))) for pair in url.query.split("&")]
            answer = self._get(url.path, pairs)  # type: ignore[arg-type]  # pairs of two
            visited = visited + answer.ids if way == "next" else answer.ids + visited
        return visited, answer

    def check(self, visited: list[str], there: list[str]) -> None:
        """Check the visited ids. there: the ids before the first page was requested."""
        stayed = [each for each in there if each not in self._gone]
        assert len(set(visited)) == len(visited)
        assert [each for each in visited if each in set(stayed)] == [each for each in stayed if each in set(visited)]
        assert set(stayed) <= set(visited)

    def _get(self, path: str, pairs: list[tuple[str, str]]) -> Answer:
        answer = self._server.get(path, *pairs)
        assert answer.status == 200, answer.body
        return answer

    def _happen(self, turn: Turn) -> None:
        ids = [row["id"] for row in self._server.sql(("SELECT id FROM users ORDER BY id",))]
        for place in turn.changed if ids else ():
            self._server.sql((CHANGE, ids[place % len(ids)]))
        for place in turn.leaving if ids else ():
            self._server.sql(("DELETE FROM users WHERE id = $1", ids[place % len(ids)]))
            self._gone.add(str(ids[place % len(ids)]))
        for user in turn.coming:
            self._server.sql((ADD, *user.values))


@given(
    sort=st.sampled_from(SORTS),
    path=st.sampled_from(PLACES),
    size=st.integers(1, 4),
    users=st.lists(USERS, min_size=3, max_size=14),
    turns=st.lists(TURNS, max_size=8),
)
@settings(max_examples=settings().max_examples)
def test_each_row_that_stays_is_visited_once(
    server: Served, sort: str, path: str, size: int, users: list[User], turns: list[Turn]
) -> None:
    server.sql(
        ("TRUNCATE users, groups RESTART IDENTITY CASCADE",),
        ("INSERT INTO groups (name) VALUES ('one'), ('two')",),
        *((ADD, *user.values) for user in users),
    )
    takes_sort = sort and "relationships" not in path
    walk = Walk(server, path, [("sort", sort)] if takes_sort else [], turns)
    there = walk.all_ids()
    visited, last = walk.follow(walk.begin(size), "next")
    walk.check(visited, there)
    if last.ids:
        there = walk.all_ids()
        visited, _ = walk.follow(last, "prev")
        walk.check(visited, there[: there.index(last.ids[-1]) + 1])
