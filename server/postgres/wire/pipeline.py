"""Pipelined statements: sent with the next one, without waiting for their results, in one round trip.

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
_BIND_COMPLETE = b"2\0\0\0\x04"
_ROW, _COMMAND_COMPLETE, _ERROR = ord("D"), ord("C"), ord("E")
_ANSWER = frozenset(b"12")
"""ParseComplete, BindComplete: with DataRow and CommandComplete the answer to a statement."""


class Parameter(bytes):
    """A value as it is sent. One value may be sent with several statements."""

    __slots__ = ()


_SENT_AS_TEXT = frozenset({int, str, UUID, Parameter})


class PipelinedStatement:
    """A statement that is sent with the next one. values: without any it is a command, such as BEGIN. tag: what
    PostgreSQL says of it, such as `UPDATE 3`; None until it is executed. is_refused: whether PostgreSQL has refused it.
    sent_at: by time.perf_counter."""

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
    kinds = set(map(type, values))
    if kinds <= _SENT_AS_TEXT:
        return True
    return kinds <= _SENT_AS_TEXT | {list} and all(
        set(map(type, elements)) <= _SENT_AS_TEXT for elements in _lists(values)
    )


def _lists(values: Sequence[Any]) -> list[list[Any]]:
    return [value for value in values if type(value) is list]


def parse_message(sql: str) -> bytes:
    """Return the message that parses an unnamed statement."""
    text = sql.encode()
    return b"P%b\0%b\0\0\0" % ((8 + len(text)).to_bytes(4, "big"), text)


def execute_messages(statement: bytes, values: Sequence[Any]) -> bytes:
    """Return the messages that execute a statement. statement: its name. All values are sent and returned as text."""
    sent = b"".join([value if type(value) is Parameter else as_parameter(value) for value in values])
    bind = b"\0%b\0\0\0%b%b\0\0" % (statement, len(values).to_bytes(2, "big"), sent)
    return b"B%b%b%b" % ((4 + len(bind)).to_bytes(4, "big"), bind, _EXECUTE)


def as_parameter(value: Any) -> Parameter:
    """Return a value as it is sent: as text, after its length."""
    text = (_array_text(value) if type(value) is list else str(value)).encode()
    return Parameter(len(text).to_bytes(4, "big") + text)


@lru_cache(maxsize=16)
def command_messages(sql: str) -> bytes:
    """Return the messages that execute a statement without values, such as BEGIN."""
    return parse_message(sql) + execute_messages(b"", ())


def _array_text(values: list[Any]) -> str:
    """Return a list as PostgreSQL reads an array (8.15.6). Quotation marks keep commas, and the text NULL."""
    has_strings = str in set(map(type, values))
    return f"{{{','.join(map(_element if has_strings else str, values))}}}"


def _element(value: Any) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class PipelineAnswers:
    """Takes the answers to pipelined statements out of what PostgreSQL sends. on_executed: called with
    each statement. expected: those without an answer so far."""

    def __init__(self, on_executed: Callable[[PipelinedStatement], None]) -> None:
        self._on_executed = on_executed
        self.expected: deque[PipelinedStatement] = deque()
        self._begun = b""

    def expect(self, statement: PipelinedStatement) -> None:
        """Expect the answer to a statement before all that is sent later."""
        statement.sent_at = time.perf_counter()
        self.expected.append(statement)

    def take(self, data: bytes) -> bytes:
        """Return the data without these answers. Notices and the like may be between them. After an error there is no
        further answer: PostgreSQL skips everything up to the Sync."""
        if self._begun:
            data, self._begun = self._begun + data, b""
        kept: list[bytes] = []
        begin, size, expected = 0, len(data), self.expected
        while expected:
            if data.startswith(_BIND_COMPLETE, begin):
                begin += len(_BIND_COMPLETE)
            end, kind = begin, _ROW
            while kind == _ROW:
                begin = end
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
