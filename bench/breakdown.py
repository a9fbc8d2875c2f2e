"""Measures the stages of one request in microseconds. It takes a running server, and the floor if it runs, and returns
`Stages` for each request.

The cost of planning a new shape is measured in this process. All other figures are the server's own (`Server-Timing`),
one request at a time. The rest of a request's round trip is HTTP, Tornado and the socket, including the kernel's part.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.client import Answer, ask, connected
from bench.requests import Request, rendered
from bench.results import Stages
from bench.servers import Running
from server.engine import ANYBODY, Engine
from server.preparing.reads import ReadShape
from server.resources import built_in
from server.routes import Shape, match_route
from server.schema.live_schema import LiveSchema
from server.settings import Settings

BARE = Request("bare", "bare", "GET", "/bare")
"""A route of the floor that answers without a database: only Tornado and the network."""

LEFT_OUT, AT_LEAST = 20, 40
"""The number of first answers that do not count, and the minimum number of answers, whatever the time."""

_TIMES = 30


def break_down(request: Request, ours: Running, floor: Running | None, seconds: float, cursor: str) -> Stages:
    """Measure server and floor in turns for this many seconds. Raises Refused."""
    servers = [ours, floor] if floor is not None else [ours]
    pairs = _in_turns(request, servers, seconds, cursor)
    answers = [pair[0] for pair in pairs]
    measured = [answer.stages for answer in answers]
    planned = [sum(stages.get(name, 0.0) for name in ("parse", "plan")) for stages in measured]
    rest = [answer.seconds * 1e6 - sum(stages.values()) for answer, stages in zip(answers, measured, strict=True)]
    return Stages(
        request.name,
        request.label,
        first=None if request.writes else first_plan_us(request, cursor),
        plan=statistics.median(planned),
        execute=statistics.median(stages.get("execute", 0.0) for stages in measured),
        encode=statistics.median(stages.get("encode", 0.0) for stages in measured),
        rest=statistics.median(rest),
        round_trip=statistics.median(answer.seconds * 1e6 for answer in answers),
        floor=statistics.median(pair[1].seconds * 1e6 for pair in pairs) if floor is not None else None,
    )


def bare_round_trip(floor: Running, seconds: float) -> float:
    """Return the round trip in microseconds of an answer without a database."""
    pairs = _in_turns(BARE, [floor], seconds, "")
    return statistics.median(pair[0].seconds for pair in pairs) * 1e6


def _in_turns(request: Request, servers: Sequence[Running], seconds: float, cursor: str) -> list[list[Answer]]:
    """Send the request to each server in turn, many times. Return the answers of each, without bodies."""
    turns: list[list[Answer]] = []
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(server.port)) for server in servers]
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(turns) < AT_LEAST:
            answers = [ask(connection, request, len(turns) + 1, cursor) for connection in connections]
            turns.append([_without_body(answer) for answer in answers])
    return turns[LEFT_OUT:]


def _without_body(answer: Answer) -> Answer:
    return Answer(answer.status, answer.head, b"", answer.seconds, answer.first_seconds)


def read_shape(request: Request, engine: Engine) -> ReadShape:
    """Return the shape of a reading route."""
    route = match_route(request.path.partition("?")[0], engine.catalog, engine.fixed_paths)
    assert route is not None
    assert route.resource is not None
    accepts = route.methods["GET"].accepts
    if route.shape is Shape.RELATED:
        return ReadShape("related", route.resource, route.relationship, accepts=accepts)
    is_collection = route.shape is Shape.COLLECTION
    return ReadShape("collection" if is_collection else "resource", route.resource, accepts=accepts)


def first_plan_us(request: Request, cursor: str) -> float:
    """Return the microseconds that it takes to parse, plan and compile a new shape: the median over fresh engines."""
    query_string = rendered(request, 1, cursor)[0].partition("?")[2]
    catalog, durations = built_in(), []
    for _ in range(_TIMES):
        engine = Engine(Settings(), catalog, LiveSchema())
        shape = read_shape(request, engine)
        begin = time.perf_counter()
        engine.reads.prepare(shape, query_string, ANYBODY)
        durations.append(time.perf_counter() - begin)
    return statistics.median(durations) * 1e6
