"""Creates load with wrk, by sending one request over and over. It takes an address, a request, the time and the number
of connections, and returns a sample. It must not know which server answers.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from bench.requests import USERS, Request, template

SCRIPT = Path(__file__).with_name("load.lua")
WITHOUT_WRK = "wrk is not installed: `apt-get install wrk`, `brew install wrk`, or https://github.com/wg/wrk"


class Sample(msgspec.Struct, frozen=True):
    """One run of wrk. errors: answers of 400 and above, and failed connections. cpu_us, database_cpu_us: processor time
    of the server and of PostgreSQL for one request, which depends little on other work on the machine.
    """

    requests: int
    microseconds: int
    p50_us: float
    p99_us: float
    errors: int
    connections: int = 0
    cpu_us: float = 0.0
    database_cpu_us: float = 0.0

    @property
    def per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.microseconds * 1e6


def wrk_version() -> str:
    """Return the version of wrk, or "" if it is not installed."""
    if shutil.which("wrk") is None:
        return ""
    return subprocess.run(["wrk", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split(" [")[0]


def whole_seconds(seconds: float) -> int:
    """Return the whole seconds that wrk runs for this time."""
    return max(1, round(seconds))


def send(url: str, request: Request, seconds: float, connections: int, first: int = 1, cursor: str = "") -> Sample:
    """Send load to `http://host:port` with one thread and `connections` keep-alive connections, for about this many
    seconds; wrk counts whole ones. first: the number of the first request. Raises subprocess.CalledProcessError.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as body:
        body.write(request.body)
        body.flush()
        run = ["wrk", "-t1", f"-c{connections}", f"-d{whole_seconds(seconds)}s", "--timeout", "60s", "-s", str(SCRIPT)]
        arguments = [
            request.method,
            template(request, cursor),
            body.name if request.body else "",
            str(first),
            str(USERS),
        ]
        output = subprocess.run([*run, url, "--", *arguments], capture_output=True, text=True, check=True).stdout
    sample = msgspec.json.decode(output.strip().splitlines()[-1], type=Sample)
    return msgspec.structs.replace(sample, connections=connections)
