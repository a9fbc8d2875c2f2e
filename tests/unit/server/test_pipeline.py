"""Pipelined statements: their values, and the answers that the meter keeps from asyncpg."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from server.postgres.wire.pipeline import PipelineAnswers, PipelinedStatement, execute_messages, has_texts


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + (4 + len(body)).to_bytes(4, "big") + body


SET = message("2") + message("D", b"\0\1\0\0\0\6editor") + message("C", b"SELECT 1\0")
ROWS = message("2") + message("D", b"CCZE" * 30) + message("C", b"SELECT 1\0") + message("Z", b"I")
NOTICE, STATUS, ERROR = message("N", b"C12D"), message("S", b"is_superuser\0off\0"), message("E", b"C42501\0")


@pytest.mark.parametrize(
    ("expected", "sent", "passed"),
    [
        (1, SET + ROWS, ROWS),
        (1, message("1") + SET + message("1") + ROWS, message("1") + ROWS),
        (2, SET + SET + ROWS, ROWS),
        (1, NOTICE + message("2") + STATUS + SET[5:] + ROWS, NOTICE + STATUS + ROWS),
        (1, ERROR + message("Z", b"I") + ROWS, ERROR + message("Z", b"I") + ROWS),
        (1, message("2") + ERROR + message("Z", b"I"), ERROR + message("Z", b"I")),
        (2, SET + ERROR + message("Z", b"I") + ROWS, ERROR + message("Z", b"I") + ROWS),
        (0, ROWS, ROWS),
    ],
)
def test_the_answers_that_asyncpg_does_not_get(expected: int, sent: bytes, passed: bytes) -> None:
    """PostgreSQL's messages arrive in any pieces: in two of any length, and byte by byte."""
    for pieces in [*[(sent[:cut], sent[cut:]) for cut in range(len(sent))], [bytes([byte]) for byte in sent]]:
        executed: list[PipelinedStatement] = []
        answers, statements = PipelineAnswers(executed.append), [PipelinedStatement("SELECT") for _ in range(expected)]
        for one in statements:
            answers.expect(one)
        assert b"".join(map(answers.take, pieces)) == passed
        assert not answers.expected
        assert [one.is_refused for one in statements].count(True) == (ERROR in sent)
        assert all(one.count == 1 for one in executed)
        assert executed == [one for one in statements if one.tag is not None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, b"12"),
        ("a,b", b"a,b"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ([3, 4], b"{3,4}"),
        ([], b"{}"),
        (['a"b', "c\\d", "NULL", "e,f", ""], b'{"a\\"b","c\\\\d","NULL","e,f",""}'),
    ],
)
def test_a_value_is_sent_as_text(value: Any, text: bytes) -> None:
    assert has_texts([value])
    assert len(text).to_bytes(4, "big") + text in execute_messages(b"s", [value])


@pytest.mark.parametrize("value", [None, True, 1.5, [None], [[1]], b"x"])
def test_other_values_are_not_sent_as_text(value: Any) -> None:
    assert not has_texts([1, value])
