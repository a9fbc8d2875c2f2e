"""Makes two separate comparisons. They take a database and a server, and return samples measured in turns.

The first: two workers, PostgreSQL and the load on two cores, compared with pgbench and PostgreSQL on the same two, with
SQL in which PostgreSQL makes the JSON. The second: many adds in one request of atomic operations, compared with the
same number of POSTs.
"""

from __future__ import annotations

from bench.ceilings import POSTGREST, Script, run_script
from bench.client import ask, connected
from bench.load import Sample, send
from bench.requests import ADDS, BY_NAME, Request
from bench.results import CONNECTIONS, OURS, Batch, TwoWorkers
from bench.rows import restore
from bench.servers import Cores, Rows, Running, pin_own, running, server_command

TWO_WORKERS = ("list-30-include", "list-1000-include")


def two_workers(rows: Rows, cores: Cores, pgbench: str, seconds: float, rounds: int) -> list[TwoWorkers]:
    """Measure two workers and pgbench in turns, with everything pinned to two cores. Raises StartFailed."""
    rows.processes.pin(cores.both)
    pin_own(cores.both)
    try:
        with running(OURS, "two workers", server_command(rows.url, 2), cores.both) as server:
            return [_pair(server, rows, cores, pgbench, BY_NAME[name], seconds, rounds) for name in TWO_WORKERS]
    finally:
        rows.processes.pin(cores.others)
        pin_own(cores.others)


def _pair(
    server: Running, rows: Rows, cores: Cores, pgbench: str, request: Request, seconds: float, rounds: int
) -> TwoWorkers:
    samples: list[Sample] = []
    transactions: list[float] = []
    script = Script(POSTGREST[request.name])
    send(server.url, request, 1, CONNECTIONS)
    for _ in range(rounds):
        samples.append(send(server.url, request, seconds, CONNECTIONS))
        found, _ = run_script(pgbench, rows.url, script, seconds=seconds, clients=CONNECTIONS, cpus=cores.both)
        transactions.append(found)
    return TwoWorkers(request.name, request.label, samples, transactions)


def batches(server: Running, rows: Rows, rounds: int) -> Batch:
    """Measure one request with many adds and single POSTs in turns. The first turn does not count. Raises Refused."""
    many, one = BY_NAME["operations-1000"], BY_NAME["create"]
    together: list[float] = []
    single: list[float] = []
    for number in range(rounds + 1):
        for times, request, count in ((together, many, 1), (single, one, ADDS)):
            rows.run(restore)
            with connected(server.port) as connection:
                took = sum([ask(connection, request, turn).seconds for turn in range(count)]) * 1000
            if number:
                times.append(took)
    rows.run(restore)
    return Batch(ADDS, together, single)
