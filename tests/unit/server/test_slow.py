"""Statements without literals, for the log."""

from __future__ import annotations

import pytest

from server.observing.slow import SHAPE_CHARACTERS, shape_of


@pytest.mark.parametrize(
    ("sql", "shape"),
    [
        ("SELECT 1", "SELECT ?"),
        ('SELECT "t0"."id" FROM "users" "t0" LIMIT $2', 'SELECT "t0"."id" FROM "users" "t0" LIMIT $2'),
        ("SELECT id FROM t1 WHERE a = 'O''Hara' AND b=$12", "SELECT id FROM t1 WHERE a = ? AND b=$12"),
        (r"SELECT E'it\'s', e'\\', 'a\', x1", "SELECT ?, ?, ?, x1"),
        ("SELECT b'01', X'1F', N'n', U&'d\\0061t', name'n', date'2020-01-01'", "SELECT ?, ?, ?, ?, name?, date?"),
        ("SELECT $$a 'b$$, $t$ $$ $x$ $t$, $1", "SELECT ?, ?, $1"),
        ("SELECT 1.5e10, .5, 1_000, 0x1F, 1e-3, -7, a1, a1.b2, a[3]", "SELECT ?, ?, ?, ?, ?-?, -?, a1, a1.b2, a[?]"),
        ('SELECT "a""b 1", "c\'d"', 'SELECT "a""b 1", "c\'d"'),
        ("SELECT a /* b */, c /* d /* e */ f */ g", "SELECT a , c"),
        ("SELECT a -- 'comment\n, b /* 'more\n */ , c /* open", "SELECT a , b , c"),
        ("SELECT\n  a,\n\tb", "SELECT a, b"),
        ("SELECT 'never closed", "SELECT ?"),
        ("SELECT $q$ never closed", "SELECT ?"),
        ("größe 'x' é1 = 1", "größe ? é1 = ?"),
        ("", ""),
    ],
)  # fmt: skip
def test_shapes(sql: str, shape: str) -> None:
    assert shape_of(sql) == shape


def test_a_long_statement_is_cut() -> None:
    assert shape_of("x " * 5000) == ("x " * 5000)[:SHAPE_CHARACTERS] + " ..."
