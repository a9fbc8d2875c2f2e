"""Load by wrk: one kind of request over and over. In: a server, a kind, how long and how many connections. Out: a
sample. It must not know which server answers.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec

from bench.kinds import Kind
from bench.servers import Running

SCRIPT = Path(__file__).with_name("load.lua")


class Sample(msgspec.Struct, frozen=True):
    """One run of wrk. errors: answers that are not 2xx, and connections that failed. cpu_us: what
    the server's core was busy for one request, which other work on the machine changes little."""

    requests: int
    microseconds: int
    p50_us: float
    p99_us: float
    errors: int
    cpu_us: float = 0.0

    @property
    def per_second(self) -> float:
        return self.requests / self.microseconds * 1e6


def check_wrk() -> str:
    """wrk's version. Raises SystemExit when it is not installed."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: `apt-get install wrk`, or https://github.com/wg/wrk")
    return subprocess.run(["wrk", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split(" [")[0]


def measure(server: Running, kind: Kind, seconds: float, connections: int) -> Sample:
    """One thread and `connections` keep-alive connections for about so many seconds; wrk counts whole ones."""
    run = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s", str(SCRIPT)]
    command = [*run, f"http://127.0.0.1:{server.port}", "--", kind.method, kind.target, kind.body]
    begin = server.cpu_seconds()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = server.cpu_seconds() - begin
    sample = msgspec.json.decode(output.strip().splitlines()[-1], type=Sample)
    return msgspec.structs.replace(sample, cpu_us=used * 1e6 / max(1, sample.requests))
