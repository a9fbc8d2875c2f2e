"""Receives the body of an import into a temporary file: no connection to PostgreSQL is taken before it is whole, and
its size is not that of the memory.

It must not know: documents, the database, handlers.
"""

from __future__ import annotations

import tempfile
from hashlib import sha256
from typing import BinaryIO, cast

from querybuild.errors import ApiError
from server.errors import Overloaded
from server.handlers.received_body import ReceivedBody

_CHUNK = 1_048_576


class ReceivedFile(ReceivedBody):
    """A body in a temporary file, which is gone when the request has ended."""

    _file: BinaryIO | None = None

    def check_length(self) -> None:
        """Check the announced length before the body arrives. Raises BodyTooLarge."""
        if self.content_length() > self._max_bytes:
            raise self._too_large()

    def add(self, chunk: bytes) -> ApiError | None:
        """Keep a chunk. Returns the error if the file becomes too large, or if the disk is full."""
        if self.is_refused:
            return None
        self._received_bytes += len(chunk)
        if self._received_bytes > self._max_bytes:
            return self._too_large()
        try:
            self.file.write(chunk)
        except OSError:
            return Overloaded("The server has no room left for the file; try again.")
        return None

    @property
    def file(self) -> BinaryIO:
        """The file. Its reader seeks."""
        if self._file is None:
            self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - it lives as long as the request
        return self._file

    def whole(self) -> bytes:
        """Return what is the same only for the same file."""
        digest = sha256()
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            digest.update(chunk)
        return digest.digest()

    def refuse(self) -> None:
        """Forget the body, and ignore the rest of it."""
        super().refuse()
        self._close()

    def release(self) -> None:
        """Remove the file: the request has ended, or its client has gone."""
        super().release()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
