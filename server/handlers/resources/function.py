"""Answers the routes of database functions: resources that a function returns, or its value."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec

from querybuild.calls import SentCall, read_members, read_parameters
from querybuild.cursors import mark_of
from querybuild.declarations.access import has_principal
from querybuild.declarations.function import ARGUMENT, RESULT, Call, Function
from querybuild.errors import ApiError, not_allowed, quoted, release_frames
from querybuild.parse import split_pairs
from querybuild.planning.context import check_action
from serializers import pointers
from serializers.decode import decode_meta
from serializers.objects import MetaDocument
from server.execution.arguments import arguments_of
from server.execution.calls import answer_refusals, check_privilege, read_value, write_rows, write_value
from server.execution.execute import ReadResult
from server.execution.writes.reply import Reply
from server.handlers.auditing import Target
from server.handlers.pages.answering import asked_of, finish_page
from server.handlers.pages.reads import value_page
from server.handlers.pipeline import run_stages
from server.handlers.reading import Reading
from server.handlers.writing import WritingHandler
from server.http.negotiation import HTML
from server.preparing.reads import ReadShape

Result = TypeVar("Result")


class Called(msgspec.Struct, frozen=True, eq=False):
    """A call that is ready to run. reading: the read of the resources that it returns. None if it returns a value."""

    sent: SentCall
    reading: Reading | None


class FunctionHandler(WritingHandler):
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
            await run_stages(self, self._parse_parameters, self._plan_rows, self._read_rows, self._encode_rows)
        else:
            self.check_parameters()
            await run_stages(self, self._parse_parameters, self._plan_value, self._read_value, self._encode_value)

    async def post(self) -> None:
        if self.function.returns:
            await self.answer_write(self._parse_body, self._plan_call, self._write_rows, self._reply_rows)
        else:
            await self.answer_write(self._parse_body, self._plan_value, self._write_value, self._reply_value)

    def targets(self) -> list[Target]:
        """Return the function, for the audit log."""
        return [Target("call", self.function.route_path)]

    def check_parameters(self) -> None:
        self.engine.reads.check_parameters(self.request.query, self._parameters)

    @property
    def _parameters(self) -> frozenset[str]:
        """The parameters of the route, with the arguments of a GET."""
        names = self.function.arguments if self.function.method == "GET" else ()
        return self.method.accepts.union([ARGUMENT + argument.name for argument in names])

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
        pairs = split_pairs(self.request.query, [])
        return read_parameters(self.function, pairs, self.engine.limits.max_json_depth, errors)

    def _parse_body(self, errors: list[ApiError]) -> SentCall:
        self._check_access()
        meta = decode_meta(self.received.take(), errors, self.engine.limits)
        if meta is None:
            return SentCall(Call(self.function), ())
        return read_members(self.function, meta, pointers.META, pointers, errors)

    def _plan_rows(self, sent: SentCall, errors: list[ApiError]) -> Called | None:
        return self._with_read(sent, sent.call, sent.values, errors)

    def _plan_call(self, sent: SentCall, errors: list[ApiError]) -> Called | None:
        return self._with_read(sent, Call(self.function, is_done=True), (), errors)

    def _with_read(self, sent: SentCall, call: Call, values: tuple[Any, ...], errors: list[ApiError]) -> Called | None:
        """Return the call with the read of the resources that it returns. Appends to errors. call, values: those of the
        read."""
        shape = ReadShape(
            "collection",
            self.resource,
            accepts=self._parameters,
            call=call,
            has_versions=not self.is_tried,
            form=self.answer_type.form,
        )
        try:
            prepared = self.engine.reads.prepare(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None
        # A cursor belongs to the arguments, as one of related resources belongs to the id in the path.
        arguments = arguments_of(prepared, self.context, mark_of("", sent.values), values)
        return Called(sent, Reading(shape, prepared, arguments))

    def _plan_value(self, sent: SentCall, _: list[ApiError]) -> Called:
        return Called(sent, None)

    async def _read_rows(self, called: Called) -> ReadResult | None:
        assert called.reading is not None
        await self.cancel_scope.run(check_privilege(self.database, self.function))
        return await answer_refusals(self._execute_read(called.reading), called.sent)

    async def _encode_rows(self, called: Called, result: ReadResult | None) -> None:
        reading = called.reading
        assert reading is not None
        await answer_refusals(self._encode_read(reading, result, parent=reading.sent.path), called.sent)

    async def _read_value(self, called: Called) -> str | None:
        return await self.cancel_scope.run(read_value(self.database, called.sent, self.engine))

    async def _write_value(self, called: Called) -> str | None:
        return await self._recorded(write_value(self.writer, called.sent))

    async def _write_rows(self, called: Called) -> ReadResult:
        reading = called.reading
        assert reading is not None
        return await self._recorded(write_rows(self.writer, called.sent, reading.prepared, reading.sent))

    async def _recorded(self, work: Awaitable[Result]) -> Result:
        """Run a call that may write, and record it once it has been committed."""
        result = await work
        if self.audit is not None:
            self.record_done(self.targets())
        return result

    def _reply_rows(self, called: Called, result: ReadResult) -> Reply:
        assert called.reading is not None
        return Reply(200, self.document(called.reading.prepared, result, {}))

    def _reply_value(self, _: Called, value: str | None) -> Reply:
        return Reply(200, _value_document(value))

    async def _encode_value(self, _: Called, value: str | None) -> None:
        if self.answer_type is HTML:
            finish_page(self, value_page(asked_of(self, None), value))
            return
        self.tell_caches()
        self.finish_document(_value_document(value))


def _value_document(value: str | None) -> bytes:
    result = msgspec.Raw(b"null" if value is None else value.encode())
    return msgspec.json.encode(MetaDocument({RESULT: result}))
