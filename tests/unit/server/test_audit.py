"""The file of the audit log. The lines of requests are in tests/http/access/test_audit.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.observing import audit
from server.observing.audit import AuditLine, AuditLog, check_audit_log
from server.settings import Settings, StartError


def line(row_id: str, subject: str = "ann") -> AuditLine:
    return AuditLine("2026-11-22T12:00:00.000+00:00", "r", subject, "i", "create", "group", row_id, "done")


def ids(text: bytes) -> list[str]:
    return [json.loads(one)["id"] for one in text.splitlines()]


def test_two_workers_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.write_bytes(b"{}\n")
    first, second = AuditLog(str(path)), AuditLog(str(path))
    for log, number in ((first, "1"), (second, "2"), (first, "3")):
        assert log.check()
        assert log.add([line(number), line(number)])
    first.close()
    second.close()
    assert ids(path.read_bytes()[3:]) == ["1", "1", "2", "2", "3", "3"]


@pytest.mark.parametrize("name", ["nothing/audit", ""])
def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(StartError, match=r"^the audit log .* cannot be opened: "):
        check_audit_log(Settings(audit_log=str(tmp_path / name)))


def test_a_start_without_an_audit_log(tmp_path: Path) -> None:
    check_audit_log(Settings())
    check_audit_log(Settings(audit_log="-"))
    # The descriptor of standard output is still open.
    os.fstat(1)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Replace standard output by a pipe. Yield the end that reads."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    monkeypatch.setattr(audit, "STANDARD_OUTPUT_DESCRIPTOR", writing)
    yield reading
    os.close(reading)
    os.close(writing)


def test_standard_output_that_nobody_reads_never_blocks(pipe: int, caplog: pytest.LogCaptureFixture) -> None:
    """The lines are kept, and are written when there is room again."""
    log, count = AuditLog("-"), 0
    while log.add([line(str(count), "s" * 2000)]):
        count += 1
    assert count > 10
    assert not log.check()
    assert [record.message for record in caplog.records] == [
        "the audit log - cannot be written, so writes are refused: nobody reads it"
    ]
    found = os.read(pipe, 1 << 20)
    assert log.check()
    assert ids(found + os.read(pipe, 1 << 20)) == [str(number) for number in range(count + 1)]


def test_a_named_pipe_without_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(StartError):
        AuditLog(str(path))


def test_lines_that_could_never_be_written_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a last resort, when the worker ends."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(str(path))
    os.close(reading)
    assert not log.add([line("1")])
    log.close()
    assert [record.message for record in caplog.records] == [
        f"the audit log {path} cannot be written, so writes are refused: Broken pipe",
        f"a line is missing in the audit log: {ids_line('1')}",
    ]


def ids_line(row_id: str) -> str:
    return (
        '{"time":"2026-11-22T12:00:00.000+00:00","request_id":"r","subject":"ann","issuer":"i","kind":"create",'
        f'"type":"group","id":"{row_id}","outcome":"done"}}'
    )
