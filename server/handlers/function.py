"""Answers the routes of database functions: resources that a function returns, or its value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from querybuild.calls import SentCall, read_members, read_parameters
from querybuild.cursors import mark_of
from querybuild.declarations.access import has_principal
from querybuild.declarations.function import RESULT, Call, Function
from querybuild.errors import ApiError, not_allowed, quoted, raise_as, release_frames
from querybuild.parse import split_pairs
from querybuild.planning.context import check_action
from serializers.decode import decode_meta
from serializers.objects import MetaDocument
from serializers.pointers import member_pointer
from server.engine import PreparedRead, ReadShape
from server.errors import AuditFailed, MissingPrivilege
from server.execution.arguments import Arguments
from server.execution.execute import ReadResult, run_read
from server.execution.refusals import call_answer
from server.handlers.reading import Reading
from server.handlers.writing import DONE, AuditedHandler, Target
from server.postgres.connection import Connection

Result = TypeVar("Result")
META = "/meta"
_MAY_EXECUTE = "SELECT has_function_privilege($1::int8::oid, 'EXECUTE')"


class Called(msgspec.Struct, frozen=True, eq=False):
    """A call that is ready to run. reading: the read of the resources that it returns. None if it returns a value."""

    sent: SentCall
    reading: Reading | None


class FunctionHandler(AuditedHandler):
    """Calls a function: a GET in a transaction that only reads, a POST in one that may write."""

    @property
    def function(self) -> Function:
        """The function of the route."""
        assert self.route is not None
        assert self.route.function is not None
        return self.route.function

    async def get(self) -> None:
        self._check_access()
        if self.function.returns:
            await self.run(self._parse_parameters, self._plan_rows, self._read_rows, self._encode_rows)
        else:
            await self.run(self._parse_parameters, self._plan_value, self._read_value, self._encode_value)

    async def post(self) -> None:
        self._check_access()
        if self.function.returns:
            await self.run(self._parse_body, self._plan_call, self._write_rows, self._encode_written)
        else:
            await self.run(self._parse_body, self._plan_value, self._write_value, self._encode_value)

    def targets(self) -> list[Target]:
        """Return the function, for the audit log."""
        return [Target("call", self.function.route_path)]

    def _check_access(self) -> None:
        """Check that the principal may call the function. Raises Forbidden, Unauthenticated."""
        principal = self.context.principal
        audiences = self.function.audiences(is_authenticated=self.engine.has_authentication)
        if not any(has_principal(audience, principal) for audience in audiences):
            by = "without credentials" if principal.is_anonymous else "with these credentials"
            raise not_allowed(principal, f"The function {quoted(self.function.route_path)} may not be called {by}.")
        if self.function.returns:
            check_action(self.resource, "read", self.context)

    def _parse_parameters(self, errors: list[ApiError]) -> SentCall:
        pairs = split_pairs(self.request.query, list[ApiError]())
        return read_parameters(self.function, pairs, self.engine.limits.max_json_depth, errors)

    def _parse_body(self, errors: list[ApiError]) -> SentCall:
        meta = decode_meta(self.take_body(), errors, self.engine.limits)
        if meta is None:
            return SentCall(Call(self.function), ())
        return read_members(self.function, meta, partial(member_pointer, META), errors)

    def _plan_rows(self, sent: SentCall, errors: list[ApiError]) -> Called | None:
        return self._with_read(sent, sent.call, sent.values, errors)

    def _plan_call(self, sent: SentCall, errors: list[ApiError]) -> Called | None:
        return self._with_read(sent, Call(self.function, is_done=True), (), errors)

    def _with_read(self, sent: SentCall, call: Call, values: tuple[Any, ...], errors: list[ApiError]) -> Called | None:
        """Return the call with the read of the resources that it returns. Appends to errors. call, values: those of the
        read. The values follow those of the query."""
        assert self.route is not None
        shape = ReadShape("collection", self.resource, accepts=self._method.accepts, call=call)
        try:
            prepared = self.engine.prepare_read(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None
        # A cursor belongs to the arguments, as one of related resources belongs to the id in the path.
        parent = mark_of("", sent.values)
        self.route = msgspec.structs.replace(self.route, id=parent)
        arguments = Arguments((*prepared.values, *values), self.context.values, parent)
        return Called(sent, Reading(shape, prepared, arguments))

    def _plan_value(self, sent: SentCall, _: list[ApiError]) -> Called:
        return Called(sent, None)

    async def _check_privilege(self) -> None:
        """Check that the role of the request may execute the function. PostgreSQL only does it when it plans, if it
        inlines the function, and may keep the plan for other roles. Raises MissingPrivilege."""
        if self.database.role is None:
            return
        oid = self.function.signature.oid
        work = self.database.read(lambda one: one.fetchval(_MAY_EXECUTE, oid), is_snapshot=False)
        if await self.cancel_scope.run(work) is False:
            raise MissingPrivilege("The role of the request may not execute the function.")

    async def _read_rows(self, called: Called) -> ReadResult:
        await self._check_privilege()
        assert called.reading is not None
        return await self._refusing(self._execute_read(called.reading))

    async def _encode_rows(self, called: Called, result: ReadResult) -> None:
        assert called.reading is not None
        await self._refusing(self._encode_read(called.reading, result, {}))

    async def _read_value(self, called: Called) -> str | None:
        await self._check_privilege()
        work = self.database.read_unknown(partial(self._fetch_value, called), is_snapshot=False)
        return await self._refusing(self.cancel_scope.run(work))

    async def _write_value(self, called: Called) -> str | None:
        return await self._write(partial(self._fetch_value, called))

    async def _write_rows(self, called: Called) -> ReadResult:
        return await self._write(partial(self._fetch_rows, called))

    async def _write(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run a call in a transaction, and record it once it has been committed."""
        await self._check_privilege()
        result = await self._refusing(
            self.cancel_scope.run(self.database.write(work, committing=self.cancel_scope.shield)), META
        )
        if self.audit is not None:
            self._is_recorded = True
            if not self._record(self.targets(), DONE):
                raise AuditFailed("The write was done, but the audit log cannot be written.")
        return result

    async def _refusing(self, work: Awaitable[Result], pointer: str | None = None) -> Result:
        """Await the work. Raises what PostgreSQL refuses as an answer."""
        try:
            return await work
        except ApiError:
            raise
        except Exception as error:
            answer = call_answer(error, pointer)
            if answer is None:
                raise
            raise_as(answer, error)

    async def _fetch_value(self, called: Called, connection: Connection) -> str | None:
        statement = self.engine.statements.of_call(called.sent.call, None)
        with connection.limit_received(self.engine.settings.max_answer_bytes):
            value: str | None = await connection.fetchval(statement.sql, *called.sent.values)
        return value

    async def _fetch_rows(self, called: Called, connection: Connection) -> ReadResult:
        """Call the function, and then read the resources that it has returned, as they are now."""
        assert called.reading is not None
        key = called.reading.shape.resource.id.key
        statement = self.engine.statements.of_call(called.sent.call, key)
        with connection.limit_received(self.engine.settings.max_answer_bytes):
            ids = [row[0] for row in await connection.fetch(statement.sql, *called.sent.values)]
        prepared, sent = called.reading.prepared, called.reading.sent
        sent = msgspec.structs.replace(sent, request=(*sent.request, ids))
        result = await run_read(connection, prepared, sent, self.engine)
        assert result is not None
        return result

    async def _encode_written(self, called: Called, result: ReadResult) -> None:
        assert called.reading is not None
        prepared: PreparedRead = called.reading.prepared
        await self.finish_written(self.document(prepared, result, {}))

    async def _encode_value(self, _: Called, value: str | None) -> None:
        result = msgspec.Raw(b"null" if value is None else value.encode())
        self.tell_caches()
        self.finish_document(msgspec.json.encode(MetaDocument({RESULT: result})))
