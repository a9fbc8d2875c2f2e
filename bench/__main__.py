"""The command line of the benchmark. In: how long and how often. Out: `bench/figures/first.json` and `.md`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from bench import report
from bench.breakdown import bare_round_trip, break_down
from bench.client import check_same_documents
from bench.kinds import KINDS, Kind
from bench.load import Sample, check_wrk, measure
from bench.operations import compare
from bench.servers import (
    Cores,
    Running,
    choose_cores,
    database,
    floor_command,
    forget_created,
    running,
    server_command,
)
from server.embedded_cluster import MAJOR

FIGURES = Path(__file__).with_name("figures")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The server against a hand-written floor.")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds a kind")
    parser.add_argument("--seconds", type=float, default=3, help="of one run of wrk, whole ones")
    parser.add_argument("--connections", type=int, default=16, help="that wrk keeps open")
    parser.add_argument("--only", default="", help="kinds whose name begins like this")
    parser.add_argument("--operations", action="store_true", help="atomic operations against single requests instead")
    parser.add_argument("--name", default="first", help="of the files in bench/figures")
    return parser.parse_args()


def _rounds(kind: Kind, servers: tuple[Running, Running], url: str, arguments: argparse.Namespace) -> report.Row:
    """Server and floor in turns, each first in every other round; a run before the first is warm-up."""
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    for number in range(arguments.rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            sample = measure(servers[which], kind, arguments.seconds, arguments.connections)
            if number:
                samples[which].append(sample)
            if kind.method != "GET":
                forget_created(url)
    return report.Row(kind.label, *samples)


def _run(url: str, cores: Cores, arguments: argparse.Namespace) -> report.Figures:
    wrk = check_wrk()
    with running(server_command(url), cores) as server, running(floor_command(url), cores) as floor:
        ports = (server.port, floor.port)
        check_same_documents(KINDS, ports)
        forget_created(url)
        rows = []
        for kind in KINDS:
            if kind.name.startswith(arguments.only):
                rows.append(_rounds(kind, (server, floor), url, arguments))
                print(kind.label, *(f"{ratio:.2f}" for ratio in rows[-1].ratios), flush=True)
        stages = break_down(ports, cores, arguments.seconds)
        bare = bare_round_trip(floor.port, arguments.seconds)
    facts = report.machine_facts(os.cpu_count() or 1, MAJOR, wrk)
    return report.Figures(" ".join(["python -m bench", *sys.argv[1:]]), facts, rows, stages, bare)


def main() -> None:
    arguments = _arguments()
    if arguments.operations:
        compare(arguments.rounds)
        return
    check_wrk()
    cores = choose_cores()
    with database(cores) as url:
        figures = _run(url, cores, arguments)
    FIGURES.mkdir(exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(figures), indent=1)
    (FIGURES / f"{arguments.name}.json").write_bytes(data + b"\n")
    (FIGURES / f"{arguments.name}.md").write_text(report.as_markdown(figures), encoding="utf-8")
    print(report.as_markdown(figures))


if __name__ == "__main__":
    main()
