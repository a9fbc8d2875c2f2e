"""Writes the audit log: a line of JSON for each written resource.

What comes in: lines. What goes out: whether they are in the file. Lines that could not be written are kept, and are
written before the next ones.

It must not know: requests, what is written.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from server.settings import Settings, StartError

STANDARD_OUTPUT = "-"
STANDARD_OUTPUT_DESCRIPTOR = 1
MODE = 0o640
"""Nobody else may read who has written what."""

FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
"""Several workers append to one file. Nothing blocks: a named pipe that nobody reads must not stop a worker."""

log = logging.getLogger("server")


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the audit log. It has no attributes and no token. subject, issuer: None without credentials. type, id:
    None if the request was refused before they were known. outcome: `done`, or the code of the error. tried:
    whether it was rolled back in the end. replayed: whether an earlier request with the same key has done it."""

    time: str
    request_id: str
    subject: str | None
    issuer: str | None
    kind: str | None
    type: str | None
    id: str | None
    outcome: str
    relationship: str | None = None
    tried: bool = False
    replayed: bool = False


class AuditLog:
    """The audit log of one worker. Create it when the worker does not fork any more."""

    def __init__(self, target: str) -> None:
        """target: the path of a file, or `-` for standard output. Raises StartError."""
        self._target = target
        self._unwritten = b""
        self._is_failing = False
        self._encode = msgspec.json.Encoder().encode_lines
        try:
            self._open()
        except OSError as error:
            raise StartError(f"the audit log {target} cannot be opened: {error.strerror}") from error

    def _open(self) -> None:
        is_shared = self._target == STANDARD_OUTPUT
        self._descriptor = STANDARD_OUTPUT_DESCRIPTOR if is_shared else os.open(self._target, FLAGS, MODE)
        status = os.fstat(self._descriptor)
        self._is_file = stat.S_ISREG(status.st_mode)
        self._mark = (status.st_dev, status.st_ino)

    def check(self) -> bool:
        """Return whether a line can be written, as far as it is known. Ask before the write that the line is about. If
        the file was moved or removed, it is created again."""
        try:
            if self._target != STANDARD_OUTPUT and self._is_moved():
                old = self._descriptor
                self._open()
                os.close(old)
        except OSError as error:
            self._log_state(error)
            return False
        if self._is_failing:
            return self._write()
        return True

    def _is_moved(self) -> bool:
        try:
            status = os.stat(self._target)
        except FileNotFoundError:
            return True
        return (status.st_dev, status.st_ino) != self._mark

    def add(self, lines: Sequence[AuditLine]) -> bool:
        """Write lines, all at once. Return whether they are in the file."""
        self._unwritten += self._encode(lines)
        return self._write()

    def _write(self) -> bool:
        try:
            while self._unwritten:
                self._write_once()
        except OSError as error:
            self._log_state(error)
            return False
        self._log_state(None)
        return True

    def _write_once(self) -> None:
        """Write all lines to a file, or one line to a pipe: longer pieces could be mixed with those of other workers.
        Raises OSError."""
        lines = self._unwritten
        piece = lines if self._is_file else lines[: lines.index(b"\n", 1) + 1]
        if self._target == STANDARD_OUTPUT and not select.select([], [self._descriptor], [], 0)[1]:
            raise BlockingIOError(0, "nobody reads it")
        written = os.write(self._descriptor, piece)
        if written == len(piece):
            self._unwritten = lines[written:]
            return
        # The disk is full. A line that was cut is repeated as a whole, on a line of its own.
        whole = piece.rfind(b"\n", 0, written) + 1
        self._unwritten = (b"\n" if whole < written else b"") + lines[whole:]

    def _log_state(self, error: OSError | None) -> None:
        """Log when the file cannot be written, and when it can be written again."""
        if error is not None and not self._is_failing:
            log.error("the audit log %s cannot be written, so writes are refused: %s", self._target, error.strerror)
        elif error is None and self._is_failing:
            log.warning("the audit log %s is written again", self._target)
        self._is_failing = error is not None

    def close(self) -> None:
        """Write the last lines. Those that cannot be written are logged."""
        if self._unwritten and not self._write():
            for line in self._unwritten.splitlines():
                log.error("a line is missing in the audit log: %s", line.decode())
        if self._target != STANDARD_OUTPUT:
            with suppress(OSError):
                os.close(self._descriptor)


def check_audit_log(settings: Settings) -> None:
    """Check that the audit log can be opened, before any worker does it. Raises StartError."""
    if settings.audit_log is not None:
        AuditLog(settings.audit_log).close()
