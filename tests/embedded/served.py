"""A program that the tests start, watch and kill: `served.py WAY DATA_DIR [UID GID]`.

It prints a line for each event that a test waits for. The last one is the DSN. Then it serves until its input ends.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import asyncpg

from server.embedded.postgres import start


def silent(line: str) -> None:
    """Ignore a line that no test needs."""


def say(line: str) -> None:
    """Print the line with one write, so that lines of a parent and its child are never mixed."""
    os.write(1, f"{line}\n".encode())


def alone(data_dir: Path) -> None:
    with start(data_dir, say=silent) as server:
        say(server.dsn)
        sys.stdin.read()


def with_worker(data_dir: Path) -> None:
    """Fork a worker that lives longer than the server when that is killed. Each of the two prints a line."""
    server = start(data_dir, say=silent)
    child = os.fork()
    say(f"worker {os.getpid()}" if child == 0 else server.dsn)
    signal.pause()


def stopped_in_worker(data_dir: Path) -> None:
    """Leave, in a forked worker, the context manager that its parent entered."""
    with start(data_dir, say=silent) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        say(server.dsn)
        sys.stdin.read()


def as_user(data_dir: Path) -> None:
    """Start it twice as another user. Everything is imported before, because that user may have no access to the
    interpreter."""
    os.setgroups([])
    os.setgid(int(sys.argv[4]))
    os.setuid(int(sys.argv[3]))
    start(data_dir, say=say).stop()
    with start(data_dir, say=say) as server:
        say(f"connected as {asyncio.run(role(server.dsn))}")
        say(server.dsn)
        sys.stdin.read()


async def role(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    name: str = await connection.fetchval("SELECT current_user")
    await connection.close()
    return name


if __name__ == "__main__":
    ways = {way.__name__: way for way in (alone, with_worker, stopped_in_worker, as_user)}
    ways[sys.argv[1]](Path(sys.argv[2]))
