"""The master: the one that is started, and that stays. What comes in: settings, and how to read them anew. What goes
out: a server that answers until SIGTERM.

It holds the listening sockets and the embedded PostgreSQL, and forks a generation: a process that takes the settings
and the declarations, looks whether the database is as they need it, and runs the workers. SIGHUP makes a new
generation, whose workers take the place of the old ones one by one; SIGUSR2 starts the program anew, with the sockets.
The master itself loads nothing that a user wrote.

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

from server.limits import check_descriptors
from server.observing import output
from server.observing.board import Board
from server.observing.logs import configure_logging
from server.processes import systemd
from server.processes.forks import STOP_SIGNALS, Life, Signals, ending, fork
from server.processes.generation import Inherited, run_generation
from server.processes.listening import listen
from server.processes.offspring import Offspring
from server.processes.stop_times import GENERATION_SECONDS
from server.processes.succession import predecessor, start_successor
from server.processes.worker import Post
from server.processes.workers import EARLY_SECONDS, FAILURES_AT_MOST, FEWER, MORE, WHOLE
from server.settings import Settings, StartError
from server.start import Tend, open_database_url, say

log = logging.getLogger("server")

TEND_SECONDS = 0.25
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 1.0
"""How long after its end a generation is made anew."""

EXTENSION_SECONDS = 10.0
_SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR2)

ReadSettings = Callable[[], Settings]


def serve(settings: Settings, read_settings: ReadSettings) -> None:
    """Answers requests until SIGTERM or SIGINT. Raises StartError, EmbeddedError."""
    output.take_over()
    configure_logging(settings)
    with ExitStack() as cleanup:
        # Until there is someone to end in order, a signal ends the start, and what was started is stopped.
        signal.signal(signal.SIGTERM, _end_start)
        check_descriptors(settings)
        listening = listen(settings)
        cleanup.callback(listening.close)
        url, tend = open_database_url(settings, cleanup)
        inherited = Inherited(listening, Board(), url if tend is not None else None, settings)
        master = _Master(inherited, read_settings, tend)
        try:
            master.run()
        finally:
            master.stop()
            if master.successor is None:
                listening.remove_paths()


def _end_start(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


class _Master:
    """current: the generation that answers. coming: the one that is to take its place. leaving: those that end. lent:
    how many of the current one's workers have gone for coming ones."""

    def __init__(self, inherited: Inherited, read_settings: ReadSettings, tend: Tend | None) -> None:
        self.inherited = inherited
        self.read_settings = read_settings
        self.tend = tend
        self.current: Offspring | None = None
        self.coming: Offspring | None = None
        self.leaving: list[Offspring] = []
        self.count = 0
        self.has_answered = False
        self.lent = 0
        self.failures = 0
        self.again_at = 0.0
        self.successor: int | None = None
        self.predecessor = predecessor()
        self.watchdog_seconds = systemd.watchdog_seconds()
        self.fed_at = 0.0
        self.had_terminal = _has_terminal()
        self.life = Life()
        self.signals = Signals(_SIGNALS)

    def run(self) -> None:
        """Until a stop signal. Raises StartError when nothing can be started, or nothing stays."""
        self._begin(lambda: self.inherited.settings)
        while not self.signals.is_stop:
            if self.tend is not None:
                self.tend()
            if self.signals.take(signal.SIGHUP):
                if self.had_terminal and not _has_terminal():
                    # The terminal was closed: nobody asked for a reload.
                    return
                self._reload()
            if self.signals.take(signal.SIGUSR2):
                self._hand_over()
            for one in self._all():
                self._hear(one)
            self._reap()
            if self.current is None and self.coming is None and self.again_at <= time.monotonic():
                self._begin(self.read_settings)
            self._watch()
            seconds = LOOK_SECONDS if self.tend is None else TEND_SECONDS
            self.signals.wait(time.monotonic() + seconds, [one.reports.read for one in self._all()])

    def _all(self) -> list[Offspring]:
        return [one for one in (self.current, self.coming, *self.leaving) if one is not None]

    def _begin(self, read_settings: ReadSettings) -> None:
        """Raises StartError where none has answered yet."""
        try:
            self._fork(read_settings())
        except (StartError, OSError) as error:
            self._not_begun(str(error))

    def _fork(self, settings: Settings) -> None:
        self.count += 1
        # Where others answer still, its workers come one by one, as the others go.
        workers = settings.workers if self.current is None else 1
        made = Offspring(self.count, settings.worker_timeout_seconds)

        def be_generation() -> None:
            self.life.leave()
            made.reports.be_writer()
            post = Post(made.number, made.reports, self.inherited.board)
            run_generation(self.inherited, settings, workers, post, self.life)

        try:
            made.pid = fork(f"generation {self.count}", self.signals, be_generation)
        except OSError as error:
            made.reports.be_reader()
            made.reports.close()
            raise StartError(f"no process: {error.strerror}") from error
        made.reports.be_reader()
        # Not before: who has no pid of its own would stand for the whole group of processes, at waitpid as at kill.
        self.coming = made

    def _reload(self) -> None:
        self._tell(RELOADING=1, STATUS="loads the settings")
        if self.coming is not None:
            self._let_go(self.coming)
            self.coming = None
            self._take_back()
        self._begin(self.read_settings)

    def _take_back(self) -> None:
        """The one that answers has all its workers again, of which some went for one that did not come."""
        if self.lent and self.current is not None:
            os.kill(self.current.pid, WHOLE)
        self.lent = 0

    def _not_begun(self, reason: str) -> None:
        """Raises StartError where none has answered yet: it is not tried for ever."""
        if not self.has_answered:
            raise StartError(reason)
        self.again_at = time.monotonic() + AGAIN_SECONDS
        if self.current is None:
            log.error("the workers cannot be started: %s", reason)
            self._tell(STATUS=f"no workers: {reason}")
        else:
            log.error("the new settings are not taken, the old ones stay: %s", reason)
            self._tell(READY=1, STATUS=f"{self._status()}; a reload failed: {reason}")

    def _hand_over(self) -> None:
        if self.tend is not None:
            log.error("the embedded database cannot be handed over: restart the server")
        elif self.successor is None:
            try:
                self.successor = start_successor(self.inherited.listening, self.signals)
            except OSError as error:
                log.error("the new program cannot be started: %s", error)

    def _hear(self, one: Offspring) -> None:
        for _ in one.hear():
            if one is not self.coming:
                continue
            if self.current is None or len(one.alive) >= one.workers:
                self._take(one)
            else:
                os.kill(one.pid, MORE)
                # One that comes again after its end has had its place already.
                if self.lent < len(one.alive) < self.current.workers:
                    self.lent += 1
                    os.kill(self.current.pid, FEWER)

    def _take(self, one: Offspring) -> None:
        """It answers: the one before may go."""
        before, self.current, self.coming = self.current, one, None
        self.lent = 0
        if before is not None:
            self._let_go(before)
        if len(one.alive) < one.workers:
            # The one before has ended: nobody's place is waited for any more.
            os.kill(one.pid, WHOLE)
        if not self.has_answered:
            self.has_answered = True
            say(f"waterspout is ready on {self._address()}")
            if self.predecessor is not None:
                with suppress(ProcessLookupError):
                    os.kill(self.predecessor, signal.SIGTERM)
        else:
            log.warning("generation %d answers", one.number)
        self._tell(READY=1, STATUS=self._status())

    def _status(self) -> str:
        workers = self.current.workers if self.current is not None else 0
        return f"answers on {self._address()} with {workers} worker{'s' * (workers != 1)}"

    def _tell(self, **fields: str | int) -> None:
        """Tells systemd, which listens to its predecessor for as long as there is one."""
        if self.predecessor is None:
            systemd.notify(**fields)

    def _address(self) -> str:
        address = self.inherited.listening.address
        return address if address.startswith("unix:") else address + self.inherited.settings.path_prefix

    def _let_go(self, one: Offspring) -> None:
        os.kill(one.pid, signal.SIGTERM)
        self.leaving.append(one)

    def _reap(self) -> None:
        if self.successor is not None and (how := ending(self.successor)) is not None:
            log.error("the new program ended: %s", how)
            self.successor = None
        for one in self._all():
            if (how := ending(one.pid)) is not None:
                # For its reason. Whoever it says is ready takes nobody's place, and its pid is not ours to signal now.
                for _ in one.hear():
                    pass
                one.reports.close()
                self._ended(one, how)

    def _ended(self, one: Offspring, how: str) -> None:
        if one in self.leaving:
            self.leaving.remove(one)
        elif one is self.coming:
            self.coming = None
            reason = one.failure or f"generation {one.number} ended with {how}"
            self._take_back()
            self._not_begun(reason)
        else:
            self.current = None
            self._lost(one, how)

    def _lost(self, one: Offspring, how: str) -> None:
        """Raises StartError when that happened too often."""
        self.failures = self.failures + 1 if one.age_seconds < EARLY_SECONDS else 0
        log.error("generation %d ended: %s; another one is started", one.number, one.failure or how)
        self._tell(STATUS="starts its workers anew")
        if self.failures == FAILURES_AT_MOST:
            raise StartError(f"the workers ended {FAILURES_AT_MOST} times in a row, the last time with {how}")
        self.again_at = 0.0

    def _watch(self) -> None:
        """Ends workers whose loops hang, and tells systemd that the others do not."""
        for one in self._all():
            for pid in one.hung():
                log.error("worker with pid %d has not been heard of for %g s and is killed", pid, one.timeout_seconds)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.current is None:
            # A migration may take its time.
            self._tell(EXTEND_TIMEOUT_USEC=round(EXTENSION_SECONDS * 1e6))
        if self.predecessor is not None and os.getppid() != self.predecessor:
            self.predecessor = None
            if self.current is not None:
                self._tell(READY=1, STATUS=self._status())
        is_well = self.current is None or bool(self.current.alive)
        if is_well and self.watchdog_seconds is not None and time.monotonic() >= self.fed_at:
            self.fed_at = time.monotonic() + self.watchdog_seconds / 4
            self._tell(WATCHDOG=1)

    def stop(self) -> None:
        """Ends all, by force when their time is over, and leaves the signals as they were found."""
        if self.successor is not None:
            self._tell(MAINPID=self.successor)
        else:
            self._tell(STOPPING=1, STATUS="finishes the requests in flight")
            self.inherited.board.end()
        # What is open still would go on taking connections, which nobody answers.
        self.inherited.listening.close()
        for one in self._all():
            os.kill(one.pid, signal.SIGTERM)
        self._wait_for(self._all())
        self.signals.close()
        self.life.close()

    def _wait_for(self, ones: list[Offspring]) -> None:
        deadline = time.monotonic() + GENERATION_SECONDS
        while ones := [one for one in ones if ending(one.pid) is None]:
            if time.monotonic() >= deadline:
                for one in ones:
                    os.kill(one.pid, signal.SIGKILL)
                deadline = float("inf")
            self.signals.wait(min(deadline, time.monotonic() + LOOK_SECONDS))


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
