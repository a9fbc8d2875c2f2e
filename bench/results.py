"""Defines the results of a run as values, with their medians and ratios. It must not know how anything was measured,
nor how it is shown.
"""

from __future__ import annotations

import statistics

import msgspec

from bench.load import Sample

OURS, FLOOR, PLAIN, ORIGINAL = "waterspout", "floor", "plain-floor", "fastapi-jsonapi"
FLOORS = (PLAIN, FLOOR)
"""The hand-written servers: one as Tornado and asyncpg document it, and one optimized as far as possible."""

CONNECTIONS = 16
"""The number of connections for ratios; requests that are sent alone have one."""


class Spread(msgspec.Struct, frozen=True):
    """A median, the lowest and the highest."""

    middle: float
    low: float
    high: float


def spread(values: list[float]) -> Spread:
    """Return the spread of these values."""
    return Spread(statistics.median(values), min(values), max(values))


class Cell(msgspec.Struct, frozen=True):
    """One request to one server: the rounds in order. void: why the figures do not count, or why there are none.
    memory_mb: of the server, and of PostgreSQL, afterwards.
    """

    samples: list[Sample] = []
    void: str = ""
    memory_mb: float = 0.0
    database_memory_mb: float = 0.0

    def at(self, connections: int) -> list[Sample]:
        """Return the valid samples with this number of connections."""
        return [] if self.void else [sample for sample in self.samples if sample.connections == connections]

    def per_second(self, connections: int) -> Spread | None:
        """Return the requests per second with this number of connections."""
        samples = self.at(connections)
        return spread([sample.per_second for sample in samples]) if samples else None

    def median(self, field: str, connections: int) -> float | None:
        """Return the median of `p50_us`, `p99_us`, `cpu_us` or `database_cpu_us`."""
        samples = self.at(connections)
        return statistics.median(getattr(sample, field) for sample in samples) if samples else None


class Row(msgspec.Struct, frozen=True):
    """One request: the cells by the servers' names. A server without such a request has no cell."""

    request: str
    label: str
    total: str
    writes: bool
    connections: int
    cells: dict[str, Cell]

    def ratio(self, server: str, other: str, *, of_cpu: bool = False) -> Spread | None:
        """Return the requests per second of `server` divided by those of `other`, round by round. of_cpu: requests for
        each second of the server's processor time instead.
        """
        pairs = self._pairs(server, other)
        if of_cpu:
            found = [theirs.cpu_us / ours.cpu_us for ours, theirs in pairs if ours.cpu_us and theirs.cpu_us]
        else:
            found = [ours.per_second / theirs.per_second for ours, theirs in pairs]
        return spread(found) if found else None

    def _pairs(self, server: str, other: str) -> list[tuple[Sample, Sample]]:
        if server not in self.cells or other not in self.cells:
            return []
        both = (self.cells[server].at(self.connections), self.cells[other].at(self.connections))
        return [(ours, theirs) for ours, theirs in zip(*both, strict=False) if ours.requests and theirs.requests]


class Contender(msgspec.Struct, frozen=True):
    """A server of the run. name: the key of the cells."""

    name: str
    label: str


class Stages(msgspec.Struct, frozen=True):
    """The stages of one request: microseconds, medians, one connection. first: parsing, planning and compiling of a new
    shape. plan: the same for a known shape; for a write, decoding and planning. rest: HTTP and the socket. floor: a
    whole round trip of the hand-written server.
    """

    request: str
    label: str
    first: float | None
    plan: float
    execute: float
    encode: float
    rest: float
    round_trip: float
    floor: float | None


class Ceiling(msgspec.Struct, frozen=True):
    """A result of pgbench with only SQL. way: `same`, the statements that the server sends; `postgrest`, one statement
    in which PostgreSQL makes the JSON.
    """

    request: str
    label: str
    way: str
    cores: str
    clients: int
    per_second: float
    latency_ms: float


class TwoWorkers(msgspec.Struct, frozen=True):
    """Two workers, PostgreSQL and the load on two cores; and pgbench with PostgreSQL on the same two."""

    request: str
    label: str
    server: list[Sample]
    postgrest: list[float]

    @property
    def ratio(self) -> Spread:
        """Requests per second of the server divided by transactions per second of pgbench."""
        pairs = zip(self.server, self.postgrest, strict=True)
        return spread([sample.per_second / transactions for sample, transactions in pairs])


class AtSize(msgspec.Struct, frozen=True):
    """One request over one connection, with this many users in the table."""

    request: str
    label: str
    server: str
    users: int
    p50_us: float
    database_cpu_us: float


class Page(msgspec.Struct, frozen=True):
    """A page of ten after `offset` rows of `users`, in milliseconds. by: `number` or `cursor`. sort: of the list."""

    users: int
    offset: int
    by: str
    sort: str
    milliseconds: float


class Stream(msgspec.Struct, frozen=True):
    """The whole table in one answer. grown_mb: how much more memory the server held at most."""

    users: int
    first_byte_ms: float
    seconds: float
    megabytes: float
    grown_mb: float


class Batch(msgspec.Struct, frozen=True):
    """Milliseconds by round: of `count` adds in one request of atomic operations (`together`), and of as many POSTs on
    one connection (`single`).
    """

    count: int
    together: list[float]
    single: list[float]

    @property
    def ratio(self) -> Spread:
        """The time of one request divided by that of the POSTs."""
        return spread([one / other for one, other in zip(self.together, self.single, strict=True)])


class Figures(msgspec.Struct, frozen=True):
    """All figures of a run. facts: of the machine and of the software. missing: what was left out, and how to install
    it. bare_us: a round trip to a handler of the floor that answers a constant; 0 if it was not measured.
    """

    command: str
    facts: dict[str, str]
    servers: list[Contender]
    rows: list[Row] = []
    stages: list[Stages] = []
    ceilings: list[Ceiling] = []
    two_workers: list[TwoWorkers] = []
    sizes: list[AtSize] = []
    pages: list[Page] = []
    streams: list[Stream] = []
    batches: list[Batch] = []
    bare_us: float = 0.0
    missing: list[str] = []
