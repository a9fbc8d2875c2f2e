"""`searchText` finds the rows that a model in plain Python finds, in the order that PostgreSQL computes by a statement
written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from tests.property.served import Served, served
from waterspout import TEXT, Attribute, Catalog, Resource

WORDS = ("sea", "fog", "boat", "red", "quay", "été", "7")
DDL = "CREATE TABLE notes (id bigint PRIMARY KEY, title text NOT NULL, body text)"
CATALOG = Catalog(
    [
        Resource(
            "note",
            "/notes",
            "notes",
            (
                Attribute("title", TEXT, required=True, searchable="simple"),
                Attribute("body", TEXT, nullable=True, searchable="simple"),
            ),
            client_ids=True,
        )
    ]
)
BY_HAND = """
SELECT id FROM notes, websearch_to_tsquery('simple', $1) asked,
    LATERAL (SELECT to_tsvector('simple', title) || COALESCE(to_tsvector('simple', body), '') AS words) AS own
WHERE words @@ asked ORDER BY ts_rank(words, asked) DESC, id
"""


class Notes(msgspec.Struct):
    """The server, and the words of its rows in their order."""

    server: Served
    words: dict[int, list[str]]


@pytest.fixture(scope="module")
def notes(postgres_url: str) -> Iterator[Notes]:
    random = Random(3)

    def text() -> list[str]:
        return random.choices(WORDS, k=random.randint(0, 5))

    rows = [(number, text() or ["red"], random.choice([None, text(), text()])) for number in range(60)]
    with served(postgres_url, CATALOG, DDL) as server:
        insert = "INSERT INTO notes VALUES ($1, $2, $3)"
        texts = [(number, " ".join(one), None if other is None else ", ".join(other)) for number, one, other in rows]
        server.sql(*[(insert, *row) for row in texts])
        yield Notes(server, {number: [*one, *(other or ())] for number, one, other in rows})


class Term(msgspec.Struct):
    """Words that follow each other. is_excluded: whether they must not be there."""

    words: list[str]
    is_excluded: bool

    def text(self) -> str:
        found = f'"{" ".join(self.words)}"' if len(self.words) > 1 else self.words[0]
        return f"-{found}" if self.is_excluded else found

    def holds(self, words: list[str]) -> bool:
        size = len(self.words)
        has = any(words[start : start + size] == self.words for start in range(len(words)))
        return has != self.is_excluded


@st.composite
def searches(draw: DrawFn) -> list[list[Term]]:
    """Draw alternatives, each of terms that all hold."""
    words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2)
    term = st.builds(Term, words, st.sampled_from([False, False, True]))
    return draw(st.lists(st.lists(term, min_size=1, max_size=3), min_size=1, max_size=3))


@given(data=st.data())
def test_what_is_found(notes: Notes, data: DataObject) -> None:
    asked = data.draw(searches())
    text = " or ".join([" ".join([term.text() for term in terms]) for terms in asked])
    pairs: list[tuple[str, Any]] = [("searchText", text), ("page[size]", "0")]
    expected = [
        number
        for number, words in notes.words.items()
        if any(all(term.holds(words) for term in terms) for terms in asked)
    ]
    answer = notes.server.get("/notes", *pairs)
    assert answer.status == 200, answer.body
    assert sorted(map(int, answer.ids)) == expected
    assert [int(one) for one in answer.ids] == [row[0] for row in notes.server.sql((BY_HAND, text))]
    assert answer.document["meta"]["total"] == len(expected)
    size = data.draw(st.sampled_from([1, 3, 7]))
    walked: list[str] = []
    page = notes.server.get("/notes", ("searchText", text), ("page[size]", str(size)), ("page[after]", ""))
    while True:
        walked += page.ids
        if not (onward := page.document["links"].get("next")):
            break
        page = notes.server.follow(onward)
    assert walked == answer.ids
