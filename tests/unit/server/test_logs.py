"""The three formats of log lines, and which one is chosen."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from server.observing.logs import (
    CurrentRequest,
    JournalFormatter,
    JsonFormatter,
    TextFormatter,
    current,
    log_format,
)
from server.settings import Settings


@pytest.fixture
def answering() -> Iterator[None]:
    token = current.set(CurrentRequest("r1", "/groups"))
    yield
    current.reset(token)


def record(level: int, message: str, *values: object, error: BaseException | None = None, **fields: Any) -> Any:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("server", level, "f.py", 1, message, values, exc_info)
    made.fields = fields
    return made


def raised() -> BaseException:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        return error


def test_text() -> None:
    line = TextFormatter().format(record(logging.WARNING, "%d things", 3))
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} WARNING \[{os.getpid()}\] 3 things", line)


@pytest.mark.usefixtures("answering")
def test_text_in_a_request() -> None:
    """The id of the request appears once."""
    shown = [TextFormatter().format(record(logging.INFO, text)).partition("] ")[2] for text in ("a", "request r1: a")]
    assert shown == ["a (request r1)", "request r1: a"]


def test_text_with_a_traceback() -> None:
    first, *rest, last_but_one, last = TextFormatter().format(record(logging.ERROR, "m", error=raised())).split("\n")
    assert first.endswith(f"ERROR [{os.getpid()}] m")
    assert rest[0] == "Traceback (most recent call last):"
    assert (last_but_one, last) == ("ValueError: two", "lines")


@pytest.mark.parametrize("formatter", [TextFormatter(), JournalFormatter()])
def test_control_characters_are_escaped(formatter: logging.Formatter) -> None:
    """Other line breaks are escaped, too. The lines of a message remain lines."""
    message = "a\x00\t\r\x1b[2J\x7f\x85\x9b\u2028\u2029\ud800é\nb"
    error = ValueError("c\x9b\nd")
    lines = formatter.format(record(logging.ERROR, "%s", message, error=error)).split("\n")
    assert lines[0].endswith(r"a\x00\t\r\x1b[2J\x7f\x85\x9b\u2028\u2029\ud800é")
    assert [line.removeprefix("<3>") for line in lines[1:]] == ["b", r"ValueError: c\x9b", "d"]


@pytest.mark.usefixtures("answering")
def test_json() -> None:
    line = JsonFormatter().format(record(logging.WARNING, "m\n%s", "x", error=raised(), seconds=1.5, sql="SELECT ?"))
    shown = json.loads(line)
    assert "\n" not in line
    assert datetime.fromisoformat(shown.pop("time")).tzinfo is not None
    assert shown.pop("exception").endswith("ValueError: two\nlines")
    assert shown == {
        "level": "warning",
        "logger": "server",
        "pid": os.getpid(),
        "request_id": "r1",
        "message": "m\nx",
        "seconds": 1.5,
        "sql": "SELECT ?",
    }


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
        (logging.DEBUG, 7),
        (1, 7),
    ],
)
def test_journald(level: int, priority: int) -> None:
    assert JournalFormatter().format(record(level, "a\n\nb")) == f"<{priority}>a\n<{priority}>\n<{priority}>b"


@pytest.mark.usefixtures("answering")
def test_journald_with_a_traceback() -> None:
    """Each line has its priority: a line without one would be a message at info."""
    lines = JournalFormatter().format(record(logging.ERROR, "m", error=raised())).split("\n")
    assert lines[0] == "<3>m (request r1)"
    assert lines[-2:] == ["<3>ValueError: two", "<3>lines"]
    assert all(line.startswith("<3>") for line in lines)


CHOSEN = (
    "from server.observing.logs import log_format; from server.settings import Settings; print(log_format(Settings()))"
)


def chosen(stream: str | None, stderr: int) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    if stream is not None:
        variables["JOURNAL_STREAM"] = stream
    found = subprocess.run(
        [sys.executable, "-c", CHOSEN], env=variables, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True
    )
    return found.stdout.strip()


def test_the_format_fits_the_reader() -> None:
    """systemd gives the device and inode of the socket that is standard error."""
    read, write = os.pipe()
    try:
        found = os.fstat(write)
        assert chosen(f"{found.st_dev}:{found.st_ino}", write) == "journald"
        assert chosen(f"{found.st_dev}:{found.st_ino + 1}", write) == "text"
        assert chosen(None, write) == "text"
    finally:
        os.close(read)
        os.close(write)


def test_the_setting_chooses_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.observing.logs.is_read_by_journald", lambda: True)
    assert [log_format(Settings(log_format=chosen)) for chosen in (None, "text", "json", "journald")] == [
        "journald",
        "text",
        "json",
        "journald",
    ]
