"""Where the microseconds of one request go. In: a running server and floor. Out: one `Stages` a kind.

Parse, plan and compile are timed in this process, as for a shape that was never seen; `cached` is what stands in
their place for a shape that was. Cached, execute and encode are the server's own figures (`Server-Timing`), one
request at a time; the rest of a request's round trip is HTTP, Tornado and the socket, the kernel's part included.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.client import Answer, ask, connected
from bench.kinds import KINDS, Kind
from bench.servers import Cores
from querybuild.changes import plan_write
from querybuild.errors import raise_all
from querybuild.modify import compile_write
from querybuild.parse import parse, split_pairs
from querybuild.planner import plan_collection, plan_resource
from querybuild.query import Change, Context
from querybuild.resource import Resource
from querybuild.select import compile_read
from serializers.decode import decode_resource_document
from serializers.encode import DocumentEncoder
from server.engine import ON_COLLECTION, ON_RESOURCE, Engine
from server.resources import built_in
from server.settings import Settings

BARE = Kind("bare", "/bare")
"""A route of the floor that answers without a database: Tornado and the wire alone."""


class Stages(msgspec.Struct, frozen=True):
    """Microseconds, medians over requests. floor: a whole round trip of the floor."""

    kind: str
    parse: float
    plan: float
    compile: float
    cached: float
    execute: float
    encode: float
    rest: float
    round_trip: float
    floor: float


def break_down(ports: tuple[int, int], cores: Cores, seconds: float) -> list[Stages]:
    """ports: of the server and the floor, which are asked in turns, each kind for so many seconds."""
    engine = Engine(Settings(), built_in(), {})
    return [_stages(engine, kind, ports, cores, seconds) for kind in KINDS]


def bare_round_trip(floor_port: int, seconds: float) -> float:
    return statistics.median(floor.seconds for floor, _ in _in_turns(BARE, (floor_port, floor_port), seconds)) * 1e6


def _stages(engine: Engine, kind: Kind, ports: tuple[int, int], cores: Cores, seconds: float) -> Stages:
    answers = _in_turns(kind, ports, seconds)
    told = [answer.stages for answer, _ in answers]

    os.sched_setaffinity(0, cores.server)
    cold = _cold_create(engine, kind) if kind.method == "POST" else _cold_read(engine, kind)
    os.sched_setaffinity(0, cores.others)
    return Stages(
        kind.label,
        *cold,
        cached=statistics.median(stages.get("parse", 0.0) + stages["plan"] for stages in told),
        execute=statistics.median(stages["execute"] for stages in told),
        encode=statistics.median(stages["encode"] for stages in told),
        rest=statistics.median(answer.seconds * 1e6 - sum(answer.stages.values()) for answer, _ in answers),
        round_trip=statistics.median(answer.seconds * 1e6 for answer, _ in answers),
        floor=statistics.median(floor.seconds * 1e6 for _, floor in answers),
    )


def _in_turns(kind: Kind, ports: tuple[int, int], seconds: float) -> list[tuple[Answer, Answer]]:
    """Pairs of answers, the first 20 left out. Bodies are not kept."""
    with connected(ports[0]) as one, connected(ports[1]) as other:
        end = time.monotonic() + seconds
        pairs: list[tuple[Answer, Answer]] = []
        while time.monotonic() < end or len(pairs) < 40:
            pairs.append((_without_body(ask(one, kind)), _without_body(ask(other, kind))))
    return pairs[20:]


def _without_body(answer: Answer) -> Answer:
    return Answer(answer.head, b"", answer.seconds)


def _timed(work: Callable[[], Any], times: int = 300) -> float:
    """Median microseconds."""
    durations = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        durations.append(time.perf_counter() - begin)
    return statistics.median(durations) * 1e6


def _cold_read(engine: Engine, kind: Kind) -> tuple[float, float, float]:
    """Parse, plan, compile of a query string whose shape was never seen."""
    query_string = kind.target.partition("?")[2]
    users = engine.catalog.by_type["user"]
    errors: list[Any] = []
    accepts, plan_read = (ON_COLLECTION, plan_collection) if query_string else (ON_RESOURCE, plan_resource)

    def parsed() -> Any:
        return parse(split_pairs(query_string, errors), accepts, engine.limits, errors)

    query = parsed()

    def planned() -> Any:
        return plan_read(query, users, engine.catalog, Context(), engine.limits, errors)

    plan = planned().plan
    raise_all(errors)
    return _timed(parsed), _timed(planned), _timed(lambda: (compile_read(plan), DocumentEncoder(plan, "")))


def _cold_create(engine: Engine, kind: Kind) -> tuple[float, float, float]:
    """Decode, plan and compile of a write; the read of its answer is planned and compiled with it."""
    users = engine.catalog.by_type["user"]
    body = kind.body.encode()

    def decoded() -> Change:
        change = decode_resource_document(body, [], kind="create", max_depth=engine.settings.max_json_depth)
        assert change is not None
        return change

    change = decoded()
    read = _read_back(engine, users)
    plan = msgspec.structs.replace(plan_write(change, users, engine.catalog, Context(), []).plan, returning=read.node)
    return (
        _timed(decoded),
        _timed(lambda: (plan_write(change, users, engine.catalog, Context(), []), _read_back(engine, users))),
        _timed(lambda: (compile_write(plan), compile_read(read), DocumentEncoder(read, ""))),
    )


def _read_back(engine: Engine, users: Resource) -> Any:
    errors: list[Any] = []
    query = parse((), ON_RESOURCE, engine.limits, errors)
    return plan_resource(query, users, engine.catalog, Context(), engine.limits, errors, ("group",)).plan
