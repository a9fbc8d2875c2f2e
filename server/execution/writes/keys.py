"""Carries out a write with an Idempotency-Key once: claims the key before the write, keeps the answer with it, and
finds the kept answer if the request is sent again.

What comes in: a request with a key. What goes out: the kept answer, or an error. The key is claimed and the answer is
kept in the transaction of the write, so both are there or none is, whatever breaks in between. A claim costs no round
trip, and an answer is sent to PostgreSQL with the commit. A write that makes its own answer is one statement with both.

It must not know: HTTP, documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import asyncpg
import msgspec

from querybuild.sql.statement import Statement
from serializers.tags import with_hash
from server.errors import IDEMPOTENCY_KEY, KeyInProgress, KeyMismatch
from server.execution.writes.reply import Reply, ReplyForm
from server.postgres.connection import PostgresConnection
from server.postgres.database import Database
from server.postgres.driver_errors import state_of
from server.postgres.said import said
from server.postgres.wire.pipeline import PipelinedStatement

_CLAIM = "SELECT waterspout.claim_key($1,$2)"
# Two statements that are sent together: the second one sees what was committed before the lock was taken. In one, it
# would not see the answer of a request that has ended between its snapshot and the lock.
_LOCK = (
    "SELECT set_config('waterspout.has_key',pg_try_advisory_xact_lock(hashtextextended('waterspout key '||$1,0))::text,"
    "true)"
)
_FIND = (
    "SELECT current_setting('waterspout.has_key'),request,rights,status,has_document,document,location,media_type,etag "
    "FROM (SELECT) one LEFT JOIN waterspout.idempotency_keys "
    "ON id=$1 AND created_at>now()-make_interval(hours=>$2::int)"
)
_COLUMNS = "key,issuer,subject,address,request,rights,status,location,etag,media_type,has_document,document,created_at"
# The row of an expired key may still be there.
_REPLACE = f"ON CONFLICT (id) DO UPDATE SET ({_COLUMNS})=(excluded.{_COLUMNS.replace(',', ',excluded.')})"
# All values are texts and numbers, which can be pipelined.
_KEEP = (
    f"INSERT INTO waterspout.idempotency_keys (id,{_COLUMNS}) "
    "VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12::int=1,NULLIF(decode($13,'hex'),''),now()) "
    f"{_REPLACE}"
)

_STATE = "WSKEY"
"""The SQLSTATE of a key that could not be claimed."""


@lru_cache(maxsize=256)
def _with_answer(write: str, count: int) -> str:
    """Return a statement that claims a key, writes a row, makes the answer and keeps it. write: its beginning, which
    has the answer. count: of its parameters. It fails if there is no answer, or if the document is too large.

    The outer row of the left join is read first, so a key that cannot be claimed is refused before the row is
    written."""
    key_id, key, issuer, subject, address, request, rights, status, hours, max_bytes = [
        f"${count + number}" for number in range(1, 11)
    ]
    return (
        f'{write},"the key" AS (INSERT INTO waterspout.idempotency_keys (id,{_COLUMNS}) '
        f"SELECT {key_id},{key},{issuer},{subject},{address},{request},{rights},{status}::int,"
        f""""location","etag",'',true,"document",now() FROM "the answer" {_REPLACE}) """
        'SELECT "id","document","location","etag",'
        f'1/CASE WHEN octet_length("document")<={max_bytes}::int THEN 1 ELSE 0 END '
        f'FROM (SELECT waterspout.claim_key({key_id},{hours})) "the claim" LEFT JOIN "the answer" ON TRUE'
    )


NOT_KEPT = b'{"meta":{"answerKept":false}}'
"""The document of an answer whose own document was not kept, or may not be shown any more."""


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request with a key. id: a digest of who has sent it, and of the key. issuer, subject, address: who has sent it;
    the address only without a subject. request: a digest of what must be the same when it is sent again. rights: a
    digest of what the principal may do."""

    id: str
    key: str
    issuer: str
    subject: str
    address: str
    request: str
    rights: str

    @property
    def kept(self) -> tuple[str, ...]:
        """What is kept of it."""
        return self.id, self.key, self.issuer, self.subject, self.address, self.request, self.rights


class KeyRefused(Exception):
    """The key could not be claimed: a request with it is being carried out, or was carried out before."""


class KeyClaim:
    """The claim of a key for one request; it runs around its writes. hours: how long answers are kept. max_bytes: of
    the largest document that is kept."""

    is_one_statement = True
    _claimed: PipelinedStatement | None = None
    _is_sent = _is_refused = False

    def __init__(self, request: KeyedRequest, hours: int, max_bytes: int) -> None:
        self._request = request
        self._hours = hours
        self._max_bytes = max_bytes

    @property
    def is_held(self) -> bool:
        """Whether the key was claimed, or may have been, so that no answer of another request is kept for it."""
        return self._is_sent or (self._claimed is not None and self._claimed.tag is not None)

    async def begin(self, connection: PostgresConnection) -> None:
        """Claim the key until the end of the transaction: with the first statement of the write, which is not executed
        if that fails."""
        self._claimed = await connection.pipeline(_CLAIM, (self._request.id, self._hours))

    def refused(self) -> KeyRefused | None:
        """Return the error if the key could not be claimed."""
        is_refused = self._is_refused or (self._claimed is not None and self._claimed.is_refused)
        return KeyRefused() if is_refused else None

    async def end(self, connection: PostgresConnection, reply: Reply) -> None:
        """Keep the answer."""
        if not self.is_held:
            # There was nothing to write.
            await connection.settle()
        request, document = self._request, reply.document
        assert document is None or isinstance(document, bytes)
        kept = document if document is not None and len(document) <= self._max_bytes else b""
        # With the commit.
        await connection.pipeline(
            _KEEP,
            (
                *request.kept,
                *(reply.status, reply.location, reply.etag, reply.media_type, int(document is not None), kept.hex()),
            ),
        )

    async def write(
        self, connection: PostgresConnection, statement: Statement, values: Sequence[Any], form: ReplyForm
    ) -> tuple[Any, Reply]:
        """Claim the key, run the statement of a write that makes its own answer, and keep it, all in one statement.
        Return the id of the row, and the answer. Raises KeyRefused."""
        filled = [*values, *form.values]
        sql = _with_answer(statement.sql, len(filled))
        own = *self._request.kept, form.status, self._hours, self._max_bytes
        self._is_sent = True
        try:
            row = await connection.fetchrow(sql, *filled, *own)
        except asyncpg.PostgresError as error:
            # An error undoes the statement. Another message, or none, tells only that the connection has ended.
            self._is_sent = said(error).severity_en != "ERROR"
            self._is_refused = state_of(error) == _STATE
            if not self._is_refused:
                raise
            raise KeyRefused from error
        assert row is not None
        row_id, document, location, etag, _ = row
        return row_id, Reply(form.status, document, location, etag=with_hash(etag, document))

    async def look_up(self, database: Database) -> Reply | None:
        """Return the kept answer, or None. Raises KeyInProgress, KeyMismatch."""
        reply = await database.write(self._find)
        if reply is None and self.refused() is not None:
            # The other request has ended meanwhile, and was rolled back.
            raise KeyInProgress("A request with this key was being carried out: send it again.")
        return reply

    async def _find(self, connection: PostgresConnection) -> Reply | None:
        request = self._request
        await connection.pipeline(_LOCK, (request.id,))
        [row] = await connection.fetch(_FIND, request.id, self._hours)
        has_key, kept, rights, status, has_document, document, location, media_type, etag = row
        if has_key != "true":
            detail = f"A request with this {IDEMPOTENCY_KEY} is being carried out: send it again for its answer."
            raise KeyInProgress(detail)
        if kept is None:
            return None
        if kept != request.request:
            detail = (
                f"This {IDEMPOTENCY_KEY} was sent with another request before: each request needs a key of its own."
            )
            raise KeyMismatch(detail)
        if document is not None:
            etag = with_hash(etag, document)
        if has_document and (document is None or rights != request.rights):
            document = NOT_KEPT
        return Reply(status, document, location, media_type, etag=etag)
