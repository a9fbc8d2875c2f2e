"""Measures requests on several servers in turns. It takes running servers on one database and the table of requests,
and returns a row for each request, with every sample. It must not know how servers are started, nor how figures are
shown.

Before a request is measured, it is sent once to all servers. A server that answers differently from ours is left out of
the row, with the difference as the reason. Requests that write begin with the same rows each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench.client import Answer, Refused, ask, connected
from bench.compare import bytes_differ, content_differs, without_new_ids
from bench.load import Sample, send, whole_seconds
from bench.requests import DEEP_OFFSET, REQUESTS, USERS, Request
from bench.results import CONNECTIONS, FLOORS, OURS, Cell, Row
from bench.rows import fingerprint, make_users, restore
from bench.servers import Rows, Running

Translate = Callable[[Request], Request | None]
Say = Callable[[str], None]

DELETED_PER_SECOND = 25_000
"""Users created for DELETE: more than any server here can delete on one core, because each is deleted once. A faster
server runs out of them, and its row is void.
"""

EXTRA_SECONDS = 0.5
"""Seconds by which a run of the load may be longer than requested."""

WARM_ANSWERS, WARM_SECONDS = 50, 5.0
"""The number of answers before the first round, and the longest time for them."""


FIRST = USERS + 1
"""The number of the first request of each run."""

ENOUGH = 20
"""The number of answers that a sample should have."""


class Entrant(msgspec.Struct, frozen=True):
    """A running server, and the function that translates a request into its form."""

    running: Running
    translate: Translate

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.running.name


class Plan(msgspec.Struct, frozen=True):
    """How requests are measured. rounds: how many for the number of connections that ratios use; other numbers have one
    round. warm_up: whether a run of the load comes first, instead of a few requests. max_seconds: how long a run may
    take to get enough answers.
    """

    rounds: int
    seconds: float
    connections: tuple[int, ...]
    warm_up: bool
    max_seconds: float = 20.0


class Course(msgspec.Struct, frozen=True):
    """What all entrants share."""

    entrants: Sequence[Entrant]
    rows: Rows
    plan: Plan
    has_load: bool
    cursor: str
    say: Say


def unchanged(request: Request) -> Request:
    """Return the request unchanged."""
    return request


def find_cursor(running: Running) -> str:
    """Return the cursor of the page after 29,990 computers, read from a server that has cursors."""
    after, left = "", DEEP_OFFSET
    with connected(running.port) as connection:
        while left:
            size = min(left, 10_000)
            path = f"/computers?page[size]={size}&fields[computer]=&page[after]="
            body = ask(connection, Request("walk", "walk", "GET", f"{path}{{cursor}}"), cursor=after).body
            following = urlsplit(json.loads(body)["links"]["next"]).query
            after, left = parse_qs(following)["page[after]"][0], left - size
    return after


def chosen(only: str) -> list[Request]:
    """Return the requests whose name begins with one of the words, which are separated by commas."""
    words = tuple(word.strip() for word in only.split(",") if word.strip())
    return [request for request in REQUESTS if not words or request.name.startswith(words)]


class Lane(msgspec.Struct, frozen=True):
    """A server and the request in its form. samples: filled during the rounds."""

    entrant: Entrant
    request: Request
    samples: list[Sample]

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.entrant.name


def run_row(course: Course, request: Request) -> Row:
    """Compare the answers, then measures in turns; each round begins with another server."""
    connections = 1 if request.alone else CONNECTIONS
    translated = [(entrant, entrant.translate(request)) for entrant in course.entrants]
    lanes = [Lane(entrant, own, []) for entrant, own in translated if own is not None]
    voids = _compare(course, request, lanes)
    memory = {}
    if course.has_load:
        valid = [lane for lane in lanes if not voids[lane.name]]
        memory = _measure(course, valid, request, connections)
    if request.writes:
        course.rows.run(restore)
    cells = {
        lane.name: Cell(lane.samples, voids[lane.name] or _void_reason(lane), *memory.get(lane.name, ()))
        for lane in lanes
    }
    return Row(request.name, request.label, request.total, request.writes, connections, cells)


def _levels(plan: Plan, request: Request, connections: int) -> list[int]:
    """Return the number of connections of each round."""
    others = [level for level in plan.connections if level != connections]
    return [connections] * plan.rounds + ([] if request.alone or request.total == "exact" else others)


def _measure(course: Course, lanes: list[Lane], request: Request, connections: int) -> dict[str, tuple[float, float]]:
    """Fill the lanes. Returns the memory of the server and of PostgreSQL in MB, by the servers' names."""
    rates = {lane.name: _warm_up(course, lane, connections) for lane in lanes}
    for number, level in enumerate(_levels(course.plan, request, connections)):
        first = number % max(1, len(lanes))
        for lane in lanes[first:] + lanes[:first]:
            seconds = _seconds(course.plan, rates[lane.name], level)
            if seconds is not None:
                course.say(f"{lane.request.label}: {lane.entrant.running.label}, {level} connections")
                lane.samples.append(_run(course, lane, seconds, level))
    database = course.rows.processes.memory_mb()
    return {lane.name: (lane.entrant.running.processes.memory_mb(), database) for lane in lanes}


def _seconds(plan: Plan, rate: float, connections: int) -> float | None:
    """Return how long a run takes, so that slow answers are counted too, or None if even the longest run would be too
    short. Each connection gets an answer, unless there are more connections than for ratios. Four answers each are
    better, because a request that is unfinished at the end does not count.
    """
    wanted, turn = max(ENOUGH, 4 * connections) / rate, connections / rate
    if turn > plan.max_seconds and connections > CONNECTIONS:
        return None
    return min(max(plan.seconds, wanted), max(plan.max_seconds, 1.5 * turn))


def _warm_up(course: Course, lane: Lane, connections: int) -> float:
    """Warm up the server and return its approximate requests per second."""
    if not course.plan.warm_up:
        return _rate_of_few(course, lane)
    sample = _run(course, lane, 1, connections)
    if 0 < sample.requests < WARM_ANSWERS and not lane.request.alone:
        sample = _run(course, lane, min(WARM_ANSWERS / sample.per_second, WARM_SECONDS), connections)
    return sample.per_second if sample.requests else _rate_of_few(course, lane)


def _rate_of_few(course: Course, lane: Lane) -> float:
    """Return the rate of a few requests, one at a time."""
    _restore_rows(course, lane.request, 0)
    times: list[float] = []
    with connected(lane.entrant.running.port) as connection:
        while len(times) < 5 and sum(times) < 1:
            times.append(ask(connection, lane.request, FIRST + len(times), course.cursor).seconds)
    return 1 / min(times)


def _run(course: Course, lane: Lane, seconds: float, connections: int) -> Sample:
    """One run of the load, with its cost. It waits until the server has finished all requests of the run, which takes
    seconds if answers are slow, so that the next server has the core for itself.
    """
    _restore_rows(course, lane.request, whole_seconds(seconds) + EXTRA_SECONDS)
    processes = (lane.entrant.running.processes, course.rows.processes)
    before = [each.cpu_seconds() for each in processes]
    sample = send(lane.entrant.running.url, lane.request, seconds, connections, FIRST, course.cursor)
    used = [each.cpu_seconds() - begun for each, begun in zip(processes, before, strict=True)]
    for each in processes:
        each.wait_until_idle()
    cpu_us, database_cpu_us = (seconds * 1e6 / max(1, sample.requests) for seconds in used)
    return msgspec.structs.replace(sample, cpu_us=cpu_us, database_cpu_us=database_cpu_us)


def _restore_rows(course: Course, request: Request, seconds: float) -> None:
    """Restore the loaded rows, and creates users to be deleted."""
    if not request.writes:
        return
    course.rows.run(restore)
    if request.method == "DELETE":
        count = max(10, round(DELETED_PER_SECOND * seconds))
        course.rows.run(lambda connection: make_users(connection, FIRST, count))


def _void_reason(lane: Lane) -> str:
    errors = sum(sample.errors for sample in lane.samples)
    if errors:
        return f"{errors} errors"
    return "no answer in time" if any(not sample.requests for sample in lane.samples) else ""


def _compare(course: Course, request: Request, lanes: list[Lane]) -> dict[str, str]:
    """Return for each server by name why its figures do not count, or "" if they do. The first lane is ours. After a
    write the rows must be the same, too."""
    voids = {}
    answers: dict[str, tuple[Answer, str]] = {}
    for lane in lanes:
        course.say(f"{request.label}: {lane.entrant.running.label}, comparing answers")
        _restore_rows(course, request, 0)
        try:
            with connected(lane.entrant.running.port) as connection:
                answer = ask(connection, lane.request, FIRST, course.cursor)
        except (Refused, OSError) as error:
            voids[lane.name] = str(error)
            continue
        answers[lane.name] = (answer, course.rows.run(fingerprint) if request.writes else "")
        voids[lane.name] = _difference(request, lane.name, answers[OURS], answers[lane.name]) if OURS in answers else ""
    return voids


def _difference(request: Request, name: str, ours: tuple[Answer, str], theirs: tuple[Answer, str]) -> str:
    if ours[1] != theirs[1]:
        return "the rows after the write differ"
    if name in FLOORS:
        bodies = [answer.body for answer, _ in (ours, theirs)]
        return bytes_differ(*(without_new_ids(body, USERS) if request.writes else body for body in bodies))
    return "" if request.writes else content_differs(ours[0].body, theirs[0].body)
