"""Runs the master process, which starts the server and stays until SIGTERM.

What comes in: settings, and a function that reads them again. What goes out: a server that answers until SIGTERM.

The master holds the listening sockets and the embedded PostgreSQL, and forks a generation: a process that loads the
declarations, checks the database against them, and runs the workers. SIGHUP starts a new generation, whose workers
replace the old ones one by one. SIGUSR2 starts the program again, with the same sockets. The master
itself loads no code of the user.

It must not know: HTTP, an event loop, what workers do.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NoReturn

from server.limits.per_worker import check_descriptors
from server.observing import output
from server.observing.logs import configure_logging
from server.observing.shared_counters import SharedCounters
from server.processes import systemd
from server.processes.forks import STOP_SIGNALS, ParentPipe, Signals, fork, poll_exit
from server.processes.generation import Inherited, run_generation
from server.processes.generation_handle import GenerationHandle
from server.processes.handover import predecessor, start_successor
from server.processes.listening import listen
from server.processes.stop_times import GENERATION_SECONDS
from server.processes.worker import WorkerContext
from server.processes.workers import ADD_WORKER, EARLY_SECONDS, MAX_FAILURES, REMOVE_WORKER, RESTORE_WORKERS
from server.routes import Shape
from server.settings import Settings, StartError
from server.startup.start import Supervise, open_database_url, say

log = logging.getLogger("server")

SUPERVISE_SECONDS = 0.25
CHECK_SECONDS = 1.0
RESTART_SECONDS = 1.0
"""How long after a failed start the next generation is started."""

EXTENSION_SECONDS = 10.0
_SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR2)

ReadSettings = Callable[[], Settings]


def serve(settings: Settings, read_settings: ReadSettings) -> None:
    """Answer requests until SIGTERM or SIGINT. Raises StartError, EmbeddedError."""
    output.replace_standard_streams()
    configure_logging(settings)
    with ExitStack() as cleanup:
        # During the start a signal raises SystemExit, so that the exit stack stops what has been started.
        signal.signal(signal.SIGTERM, _exit_on_signal)
        check_descriptors(settings)
        listening = listen(settings)
        cleanup.callback(listening.close)
        url, supervise = open_database_url(settings, cleanup)
        inherited = Inherited(listening, SharedCounters(), url if supervise is not None else None, settings)
        master = _Master(inherited, read_settings, supervise)
        try:
            master.run()
        finally:
            master.stop()
            if master.successor is None:
                listening.remove_paths()


def _exit_on_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


class _Master:
    """The master process.

    current: the generation that answers. starting: the generation that will replace it. stopping: older ones that have
    been told to stop. replaced_workers: how many workers of the current generation were stopped for workers of the
    starting generation."""

    def __init__(self, inherited: Inherited, read_settings: ReadSettings, supervise: Supervise | None) -> None:
        self.inherited = inherited
        self.read_settings = read_settings
        self.supervise_database = supervise
        self.current: GenerationHandle | None = None
        self.starting: GenerationHandle | None = None
        self.stopping: list[GenerationHandle] = []
        self.count = 0
        self.has_answered = False
        self.replaced_workers = 0
        self.failures = 0
        self.restart_at = 0.0
        self.successor: int | None = None
        self.predecessor = predecessor()
        self.watchdog_seconds = systemd.watchdog_seconds()
        self.watchdog_due_at = 0.0
        self.had_terminal = _has_terminal()
        self.parent_pipe = ParentPipe()
        self.signals = Signals(_SIGNALS)

    def run(self) -> None:
        """Run until a stop signal. Raises StartError when no generation can be started, or none keeps running."""
        self._start_generation(lambda: self.inherited.settings)
        while not self.signals.is_stop:
            if self.supervise_database is not None:
                self.supervise_database()
            if self.signals.take(signal.SIGHUP):
                if self.had_terminal and not _has_terminal():
                    # This SIGHUP means that the terminal was closed, not a reload.
                    return
                self._reload()
            if self.signals.take(signal.SIGUSR2):
                self._start_successor()
            for generation in self._all():
                self._handle_reports(generation)
            self._reap()
            if self.current is None and self.starting is None and self.restart_at <= time.monotonic():
                self._start_generation(self.read_settings)
            self._check_health()
            seconds = CHECK_SECONDS if self.supervise_database is None else SUPERVISE_SECONDS
            self.signals.wait(time.monotonic() + seconds, [generation.reports.read for generation in self._all()])

    def _all(self) -> list[GenerationHandle]:
        return [generation for generation in (self.current, self.starting, *self.stopping) if generation is not None]

    def _start_generation(self, read_settings: ReadSettings) -> None:
        """Start a generation. Raises StartError if no generation has answered yet."""
        try:
            self._fork(read_settings())
        except (StartError, OSError) as error:
            self._start_failed(str(error))

    def _fork(self, settings: Settings) -> None:
        self.count += 1
        # While another generation answers, the workers are started one by one, as the others stop.
        workers = settings.workers if self.current is None else 1
        handle = GenerationHandle(self.count, settings.worker_timeout_seconds)

        def run_child() -> None:
            self.parent_pipe.close_in_child()
            handle.reports.as_writer()
            context = WorkerContext(handle.number, handle.reports, self.inherited.counters)
            run_generation(self.inherited, settings, workers, context, self.parent_pipe)

        try:
            handle.pid = fork(f"generation {self.count}", self.signals, run_child)
        except OSError as error:
            handle.reports.as_reader()
            handle.reports.close()
            raise StartError(f"cannot start a process: {error.strerror}") from error
        handle.reports.as_reader()
        # Only now: its pid was 0 before, which stands for the whole process group in waitpid and kill.
        self.starting = handle

    def _reload(self) -> None:
        self._notify(RELOADING=1, STATUS="loads the settings")
        if self.starting is not None:
            self._stop_generation(self.starting)
            self.starting = None
            self._restore_workers()
        self._start_generation(self.read_settings)

    def _restore_workers(self) -> None:
        """Restore the workers of the current generation that were stopped for a generation that failed."""
        if self.replaced_workers and self.current is not None:
            os.kill(self.current.pid, RESTORE_WORKERS)
        self.replaced_workers = 0

    def _start_failed(self, reason: str) -> None:
        """Handle a start that failed. Raises StartError if no generation has answered yet. Otherwise the old generation
        stays, or the start is retried."""
        if not self.has_answered:
            raise StartError(reason)
        self.restart_at = time.monotonic() + RESTART_SECONDS
        if self.current is None:
            log.error("the workers cannot be started: %s", reason)
            self._notify(STATUS=f"no workers: {reason}")
        else:
            log.error("the new settings are refused and the old ones stay in effect: %s", reason)
            self._notify(READY=1, STATUS=f"{self._status()}; a reload failed: {reason}")

    def _start_successor(self) -> None:
        if self.supervise_database is not None:
            log.error("the embedded database cannot be handed over: restart the server")
        elif self.successor is None:
            try:
                self.successor = start_successor(self.inherited.listening, self.signals)
            except OSError as error:
                log.error("the new program cannot be started: %s", error)

    def _handle_reports(self, generation: GenerationHandle) -> None:
        for _ in generation.read_reports():
            if generation is not self.starting:
                continue
            if self.current is None or len(generation.alive) >= generation.workers:
                self._promote(generation)
            else:
                os.kill(generation.pid, ADD_WORKER)
                # A worker that was restarted has already replaced one.
                if self.replaced_workers < len(generation.alive) < self.current.workers:
                    self.replaced_workers += 1
                    os.kill(self.current.pid, REMOVE_WORKER)

    def _promote(self, generation: GenerationHandle) -> None:
        """Make a generation the current one, because its workers answer, and stop the one before."""
        before, self.current, self.starting = self.current, generation, None
        self.replaced_workers = 0
        if before is not None:
            self._stop_generation(before)
        if len(generation.alive) < generation.workers:
            # There was no generation to replace worker by worker: start all workers now.
            os.kill(generation.pid, RESTORE_WORKERS)
        if not self.has_answered:
            self.has_answered = True
            say(f"waterspout is ready on {self._address()}{self._docs()}")
            if self.predecessor is not None:
                with suppress(ProcessLookupError):
                    os.kill(self.predecessor, signal.SIGTERM)
        else:
            log.warning("generation %d answers: settings, declarations and tables were read again", generation.number)
        self._notify(READY=1, STATUS=self._status())

    def _status(self) -> str:
        workers = self.current.workers if self.current is not None else 0
        return f"answers on {self._address()} with {workers} worker{'s' * (workers != 1)}"

    def _notify(self, **fields: str | int) -> None:
        """Notify systemd, unless a predecessor still runs: systemd then listens only to the predecessor."""
        if self.predecessor is None:
            systemd.notify(**fields)

    def _address(self) -> str:
        address = self.inherited.listening.address
        return address if address.startswith("unix:") else address + self.inherited.settings.path_prefix

    def _docs(self) -> str:
        """Return where a browser finds the docs page, or nothing if there is none or no URL leads to it."""
        settings, address = self.inherited.settings, self._address()
        if not (settings.openapi and settings.docs_page) or address.startswith("unix:"):
            return ""
        # A server listens on all addresses, and a browser goes to one.
        for everywhere in ("//0.0.0.0:", "//[::]:"):
            address = address.replace(everywhere, "//localhost:")
        return f" with its docs on {address}{Shape.DOCS}"

    def _stop_generation(self, generation: GenerationHandle) -> None:
        os.kill(generation.pid, signal.SIGTERM)
        self.stopping.append(generation)

    def _reap(self) -> None:
        if self.successor is not None and (how := poll_exit(self.successor)) is not None:
            log.error("the new program ended: %s", how)
            self.successor = None
        for generation in self._all():
            if (how := poll_exit(generation.pid)) is not None:
                # Read the reason of a failure. Workers that report ready now are gone, so they replace none.
                for _ in generation.read_reports():
                    pass
                generation.reports.close()
                self._ended(generation, how)

    def _ended(self, generation: GenerationHandle, how: str) -> None:
        if generation in self.stopping:
            self.stopping.remove(generation)
        elif generation is self.starting:
            self.starting = None
            reason = generation.failure or f"generation {generation.number} ended with {how}"
            self._restore_workers()
            self._start_failed(reason)
        else:
            self.current = None
            self._current_ended(generation, how)

    def _current_ended(self, generation: GenerationHandle, how: str) -> None:
        """Handle the end of the current generation. Raises StartError if it happens too often."""
        self.failures = self.failures + 1 if generation.age_seconds < EARLY_SECONDS else 0
        log.error("generation %d ended: %s; a new one is started", generation.number, generation.failure or how)
        self._notify(STATUS="restarts its workers")
        if self.failures == MAX_FAILURES:
            raise StartError(f"the workers ended {MAX_FAILURES} times in a row, the last time with {how}")
        self.restart_at = 0.0

    def _check_health(self) -> None:
        """Kill workers whose event loops hang, and feed the watchdog of systemd."""
        for generation in self._all():
            for pid in generation.pop_hung():
                log.error("worker with pid %d has not reported for %g s and is killed", pid, generation.timeout_seconds)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.current is None:
            # A migration may take long.
            self._notify(EXTEND_TIMEOUT_USEC=round(EXTENSION_SECONDS * 1e6))
        if self.predecessor is not None and os.getppid() != self.predecessor:
            self.predecessor = None
            if self.current is not None:
                self._notify(READY=1, STATUS=self._status())
        is_healthy = self.current is None or bool(self.current.alive)
        if is_healthy and self.watchdog_seconds is not None and time.monotonic() >= self.watchdog_due_at:
            self.watchdog_due_at = time.monotonic() + self.watchdog_seconds / 4
            self._notify(WATCHDOG=1)

    def stop(self) -> None:
        """Stop all generations, kill those that do not stop in time, and restore the signal handlers."""
        if self.successor is not None:
            self._notify(MAINPID=self.successor)
        else:
            self._notify(STOPPING=1, STATUS="finishes the requests in flight")
            self.inherited.counters.mark_stopping()
        # A socket that is still open would accept connections that nobody answers.
        self.inherited.listening.close()
        for generation in self._all():
            os.kill(generation.pid, signal.SIGTERM)
        self._wait_for(self._all())
        self.signals.close()
        self.parent_pipe.close()

    def _wait_for(self, generations: list[GenerationHandle]) -> None:
        deadline = time.monotonic() + GENERATION_SECONDS
        while generations := [generation for generation in generations if poll_exit(generation.pid) is None]:
            if time.monotonic() >= deadline:
                for generation in generations:
                    os.kill(generation.pid, signal.SIGKILL)
                deadline = float("inf")
            self.signals.wait(min(deadline, time.monotonic() + CHECK_SECONDS))


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
