"""Statements that are sent ahead of the next one, in one round trip.

Messages of PostgreSQL's protocol are executed in their order. A Sync ends a round trip, and after an error everything
up to the Sync is skipped. So a statement whose rows nobody needs is sent without a Sync, right before the next
statement. asyncpg does not know of it: the meter of the connection keeps its answer.

It must not know: connections, what the statements mean. Source: PostgreSQL, "54.7. Message Formats".
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

_HEAD_BYTES = 5
_LENGTH = Struct("!I").unpack_from
_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"
_USUAL_BEGIN = b"2\0\0\0\x04"
"""BindComplete."""

_COMMAND_COMPLETE, _ERROR = ord("C"), ord("E")
_ANSWER = frozenset(b"12D")
"""ParseComplete, BindComplete, DataRow: with CommandComplete the answer to a statement."""

_SENT_AS_TEXT = frozenset({int, str, UUID})


class Ahead:
    """A statement that is sent ahead. values: without any it is a command, such as BEGIN. tag: what PostgreSQL says of
    it, such as `UPDATE 3`; None until it is executed. is_refused: whether PostgreSQL has refused it. sent_at: by
    time.perf_counter."""

    __slots__ = ("is_refused", "sent_at", "sql", "tag", "values")

    def __init__(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.sql = sql
        self.values = values
        self.tag: str | None = None
        self.is_refused = False
        self.sent_at = 0.0

    @property
    def count(self) -> int:
        """How many rows it returned or changed. It must be executed."""
        assert self.tag is not None
        return int(self.tag.rpartition(" ")[2])


def has_texts(values: Sequence[Any]) -> bool:
    """Return whether values can be sent as text: ids, and lists of them."""
    return all(
        type(one) in _SENT_AS_TEXT or (type(one) is list and all(type(each) in _SENT_AS_TEXT for each in one))
        for one in values
    )


def parse_message(sql: str) -> bytes:
    """Return the message that parses an unnamed statement."""
    text = sql.encode()
    return b"P%b\0%b\0\0\0" % ((8 + len(text)).to_bytes(4, "big"), text)


def execute_messages(statement: bytes, values: Sequence[Any]) -> bytes:
    """Return the messages that execute a statement. statement: its name. All values are sent and returned as text."""
    texts = [(_array(value) if type(value) is list else str(value)).encode() for value in values]
    sent = b"".join([len(text).to_bytes(4, "big") + text for text in texts])
    bind = b"\0%b\0\0\0%b%b\0\0" % (statement, len(texts).to_bytes(2, "big"), sent)
    return b"B%b%b%b" % ((4 + len(bind)).to_bytes(4, "big"), bind, _EXECUTE)


@lru_cache(maxsize=16)
def command_messages(sql: str) -> bytes:
    """Return the messages that execute a statement without values, such as BEGIN."""
    return parse_message(sql) + execute_messages(b"", ())


def _array(values: list[Any]) -> str:
    """Return a list as PostgreSQL reads an array (8.15.6). Quotation marks keep commas, and the text NULL."""
    elements = ",".join([_element(one) if type(one) is str else str(one) for one in values])
    return f"{{{elements}}}"


def _element(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class AheadAnswers:
    """Takes the answers to the statements that were sent ahead out of what PostgreSQL sends. on_executed: called with
    each statement. expected: those without an answer so far."""

    def __init__(self, on_executed: Callable[[Ahead], None]) -> None:
        self._on_executed = on_executed
        self.expected: deque[Ahead] = deque()
        self._begun = b""

    def expect(self, statement: Ahead) -> None:
        """Expect the answer to a statement before all that is sent later."""
        statement.sent_at = time.perf_counter()
        self.expected.append(statement)

    def take(self, data: bytes) -> bytes:
        """Return the data without these answers. Notices and the like may be between them. After an error there is no
        further answer: PostgreSQL skips everything up to the Sync."""
        if self._begun:
            data, self._begun = self._begun + data, b""
        kept, begin, size, expected = list[bytes](), 0, len(data), self.expected
        while expected:
            if data.startswith(_USUAL_BEGIN, begin):
                begin += len(_USUAL_BEGIN)
            if begin + _HEAD_BYTES > size or (end := begin + 1 + _LENGTH(data, begin + 1)[0]) > size:
                self._begun = data[begin:]
                return b"".join(kept)
            kind = data[begin]
            if kind == _COMMAND_COMPLETE:
                done = expected.popleft()
                done.tag = data[begin + _HEAD_BYTES : end - 1].decode()
                self._on_executed(done)
            elif kind not in _ANSWER:
                kept.append(data[begin:end])
                if kind == _ERROR:
                    expected[0].is_refused = True
                    expected.clear()
            begin = end
        return b"".join([*kept, data[begin:]])
