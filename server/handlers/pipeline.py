"""The pipeline: the stages of a request in one short function."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from querybuild.errors import ApiError, Errors, raise_all
from server.handlers.base import Handler
from server.postgres.database import Door
from server.postgres.row_security.roles import translate_refusals
from server.routes import WRITES

Parsed = TypeVar("Parsed")
Planned = TypeVar("Planned")
Result = TypeVar("Result")

Parse = Callable[[list[ApiError]], Parsed]
"""Reads the path and decodes the body. Names are not resolved yet. Appends to errors."""

MakePlan = Callable[[Parsed, list[ApiError]], Planned | None]
"""Plans and compiles, or takes from the caches of the engine what was planned and compiled before. The query string is
parsed here, because it is the key of the first cache. Appends to errors; the plan may be None if there are some."""


def door_of(method: str | None) -> Door:
    """Return which server the statements of a request need."""
    return "write" if method in WRITES else "read"


async def run_stages(
    handler: Handler,
    parse: Parse[Parsed],
    plan: MakePlan[Parsed, Planned],
    execute: Callable[[Planned], Awaitable[Result]],
    encode: Callable[[Planned, Result], Awaitable[None]],
) -> None:
    """Answer the request of a handler. Before, `server/app.py` has found its route, and `prepare` has checked it
    against the route table (method, media types, length) and has asked the engine who sends it (`handler.context`)."""
    handler.database = handler.database.acting_for(handler.context.principal, door_of(handler.request.method))
    if (role := handler.database.role) is not None:
        execute, encode = translate_refusals(role, execute), translate_refusals(role, encode)
    # Each stage ends the one before.
    errors, begin = Errors(), handler.stages.append
    begin(("parse", time.perf_counter()))
    if not handler.method.accepts:
        handler.check_parameters()
    parsed = parse(errors)
    begin(("plan", time.perf_counter()))
    planned = plan(parsed, errors)
    raise_all(errors)
    assert planned is not None
    begin(("execute", time.perf_counter()))
    result = await execute(planned)
    begin(("encode", time.perf_counter()))
    await encode(planned, result)
