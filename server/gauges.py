"""Copies the state of a worker into its metrics: pool, caches, requests at work, the process.

Other workers read the metrics from shared memory, so each worker updates its own once a second.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from contextlib import suppress
from typing import Protocol

from server.engine import Engine
from server.limits.running import Running
from server.observing import metrics
from server.observing.output import dropped_lines
from server.postgres.database import Database

TICK_SECONDS = 0.25
TICKS_PER_UPDATE = 4

_PAGE_BYTES = resource.getpagesize()


class Clients(Protocol):
    """A server whose connections are counted."""

    @property
    def connections(self) -> int: ...


class Gauges:
    """The gauges of one worker. clients: the server whose connections are counted."""

    clients: Clients | None = None

    def __init__(self, engine: Engine, database: Database, running: Running) -> None:
        self._engine = engine
        self._database = database
        self._running = running
        self._meter = database.telemetry.meter

    async def run(self) -> None:
        """Update the gauges for ever, and measure the lag of the event loop."""
        loop, tick = asyncio.get_running_loop(), 0
        while True:
            if tick % TICKS_PER_UPDATE == 0:
                self.update()
            tick, due = tick + 1, loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._meter.observe(metrics.LAG, max(0.0, loop.time() - due))

    def update(self) -> None:
        """Update all gauges. Call it once more at the end of the worker, for the last figures of the caches."""
        meter = self._meter
        meter.put(metrics.CONNECTIONS, 0 if self.clients is None else self.clients.connections)
        meter.put(metrics.IN_FLIGHT, self._running.at_work)
        meter.put(metrics.STREAMS_RUNNING, self._running.streams)
        self._update_pool()
        self._update_caches()
        self._update_process()

    def _update_pool(self) -> None:
        meter, pool = self._meter, self._database.pool_figures()
        meter.put(metrics.POOL_MAX, pool.size)
        meter.put(metrics.POOL_CONNECTIONS, pool.used, "used")
        meter.put(metrics.POOL_CONNECTIONS, pool.idle, "idle")
        meter.put(metrics.POOL_WAITING, pool.waiting)

    def _update_caches(self) -> None:
        meter = self._meter
        for name, cache in (self._engine.caches | self._engine.authenticator.caches).items():
            meter.put(metrics.CACHE_HITS, cache.hits, name)
            meter.put(metrics.CACHE_MISSES, cache.misses, name)
            meter.put(metrics.CACHE_ENTRIES, len(cache), name)
            meter.put(metrics.CACHE_BYTES, cache.bytes, name)

    def _update_process(self) -> None:
        meter = self._meter
        meter.put(metrics.DROPPED_LINES, dropped_lines())
        meter.put(metrics.RESIDENT, _resident_bytes())
        meter.put(metrics.OPEN_FDS, _open_descriptors())
        meter.put(metrics.MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        meter.put(metrics.CPU_SECONDS, time.process_time())


def _resident_bytes() -> float:
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return 0.0


def _open_descriptors() -> float:
    with suppress(OSError):
        # Since Linux 6.2 st_size is their number (proc_pid_fd(5)). To list ten thousand takes milliseconds.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    return 0.0
