"""The share of a worker in the limits of the server, and the cancellation of requests. No socket, no database."""

from __future__ import annotations

import asyncio
import logging
import resource

import msgspec
import pytest

from querybuild.principal import ANONYMOUS, Principal
from server.errors import OutcomeUnknown, RequestTimeout
from server.limits import per_worker
from server.limits.clients import principal_key
from server.limits.per_worker import (
    MIN_CONNECTIONS,
    OWN_DESCRIPTORS,
    check_descriptors,
    connection_limits,
    raise_descriptors,
    share,
)
from server.limits.running import CancelScope, ClientGone, Running
from server.settings import Settings, StartError


@pytest.mark.parametrize(
    ("total", "workers", "each"), [(10, 1, 10), (10, 2, 5), (10, 3, 3), (10, 10, 1), (10, 11, 1), (1, 256, 1)]
)
def test_share(total: int, workers: int, each: int) -> None:
    assert share(total, workers) == each


class System:
    """Limits of a process as a system has them that cannot be changed for the tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, *, is_strict: bool = False) -> None:
        self.soft, self.hard, self.is_strict = soft, hard, is_strict
        monkeypatch.setattr(resource, "getrlimit", lambda _: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self.set)

    def set(self, _: int, values: tuple[int, int]) -> None:
        if self.is_strict:
            raise ValueError
        self.soft, self.hard = values


@pytest.mark.parametrize(
    ("soft", "hard", "given"),
    [
        (1024, 20_000, 20_000),
        (1024, 1024, 1024),
        (1024, resource.RLIM_INFINITY, per_worker.MAX_DESCRIPTORS),
        (1024, 2**31, per_worker.MAX_DESCRIPTORS),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, per_worker.MAX_DESCRIPTORS),
    ],
)
def test_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, given: int) -> None:
    """The hard limit does not change."""
    system = System(monkeypatch, soft, hard)
    assert raise_descriptors() == given
    assert system.soft in (soft, given)
    assert system.hard == hard


def test_a_system_that_does_not_raise_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS refuses to raise it, whatever the hard limit is."""
    System(monkeypatch, 256, resource.RLIM_INFINITY, is_strict=True)
    assert raise_descriptors() == 256


def test_connections_are_shared(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    System(monkeypatch, 1024, 100_000)
    own = connection_limits(Settings(max_connections=1000, max_buffered_bytes=4000, workers=4))
    assert (own.connections, own.unread_bytes, caplog.records) == (250, 1000, [])


def test_too_few_descriptors(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A worker keeps what it needs for itself, including its share of connections to PostgreSQL and the spare one."""
    System(monkeypatch, 1024, 1024)
    own = connection_limits(Settings(max_connections=10_000, pool_size=20, workers=2))
    assert own.connections == 1024 - OWN_DESCRIPTORS - 11
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (Settings(pool_size=20, workers=2), OWN_DESCRIPTORS + 11 + MIN_CONNECTIONS),
        (Settings(pool_size=20, workers=2, max_requests_per_client=2), OWN_DESCRIPTORS + 10 + MIN_CONNECTIONS),
        (Settings(pool_size=1, max_connections=8), OWN_DESCRIPTORS + 2 + 8),
    ],
)
def test_too_few_descriptors_for_a_server(monkeypatch: pytest.MonkeyPatch, settings: Settings, needed: int) -> None:
    System(monkeypatch, needed, needed)
    check_descriptors(settings)
    System(monkeypatch, 64, needed - 1)
    with pytest.raises(StartError) as refused:
        check_descriptors(settings)
    assert f"open {needed - 1} files, and a worker needs {needed} for" in str(refused.value)


# a request's work


async def forever() -> None:
    await asyncio.Event().wait()


async def cancelled_work(cancel_scope: CancelScope, how: str, *, is_statement: bool = False) -> BaseException:
    """Return the error that work raises when it is cancelled while it waits."""
    run = cancel_scope.run_statement if is_statement else cancel_scope.run
    task = asyncio.ensure_future(run(forever()))
    await asyncio.sleep(0)
    getattr(cancel_scope, how)()
    [result] = await asyncio.gather(task, return_exceptions=True)
    assert task.cancelling() == 0
    assert isinstance(result, BaseException)
    return result


async def test_work_is_cancelled_when_the_client_disconnects() -> None:
    assert type(await cancelled_work(CancelScope(), "cancel")) is ClientGone
    assert type(await cancelled_work(CancelScope(), "cancel", is_statement=True)) is ClientGone


async def test_work_is_cancelled_when_the_request_times_out() -> None:
    assert type(await cancelled_work(CancelScope(), "time_out")) is RequestTimeout
    assert type(await cancelled_work(CancelScope(), "time_out", is_statement=True)) is OutcomeUnknown


async def test_all_concurrent_work_is_cancelled() -> None:
    """Custom code may run several tasks at once. All that are not done are cancelled."""
    cancel_scope, gate = CancelScope(), asyncio.Event()
    gate.set()
    tasks = [asyncio.ensure_future(cancel_scope.run(work)) for work in (forever(), gate.wait(), forever())]
    await tasks[1]
    cancel_scope.time_out()
    async with asyncio.timeout(60.0):
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in done] == [RequestTimeout, bool, RequestTimeout]
    assert [task.cancelling() for task in tasks] == [0, 0, 0]


async def test_shielded_work_is_not_cancelled() -> None:
    cancel_scope, gate = CancelScope(), asyncio.Event()

    async def work() -> str:
        cancel_scope.shield()
        await gate.wait()
        return "done"

    task = asyncio.ensure_future(cancel_scope.run(work()))
    await asyncio.sleep(0)
    cancel_scope.time_out()
    cancel_scope.cancel()
    gate.set()
    assert await task == "done"
    assert type(cancel_scope.timeout_error()) is OutcomeUnknown


async def test_work_after_a_commit_is_cancelled() -> None:
    """The error does not say that nothing was written."""
    cancel_scope = CancelScope()

    async def work() -> None:
        cancel_scope.shield()

    await cancel_scope.run(work())
    assert type(await cancelled_work(cancel_scope, "time_out")) is OutcomeUnknown


async def test_work_is_cancelled_once() -> None:
    """Its cleanup is not cancelled."""
    cancel_scope = CancelScope()

    async def work() -> None:
        try:
            await forever()
        finally:
            cancel_scope.cancel()
            await asyncio.sleep(0)

    task = asyncio.ensure_future(cancel_scope.run(work()))
    await asyncio.sleep(0)
    cancel_scope.time_out()
    [result] = await asyncio.gather(task, return_exceptions=True)
    assert type(result) is RequestTimeout


async def test_cancellation_from_outside_is_a_fault() -> None:
    task = asyncio.ensure_future(CancelScope().run(forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(RuntimeError):
        await task


# running requests


class Request(msgspec.Struct, eq=False):
    client: str = "10.0.0.1"
    is_at_work: bool = False
    is_long: bool = False
    is_shut_down: bool = False

    @property
    def sender(self) -> Request:
        return self

    def check_timeouts(self, now: float, began_at: float) -> None:
        pass

    def evict(self, why: str) -> None:
        pass

    def shutdown(self) -> None:
        self.is_shut_down = True


def test_requests_at_work_are_counted() -> None:
    running = Running(2)
    requests = [Request(), Request(), Request()]
    for one in requests:
        running.add(one, 0.0)
    assert (running.at_work, running.is_full) == (0, False)
    for one in requests[:2]:
        running.begin(one)
    assert (running.at_work, running.is_full, running.has_short) == (2, True, True)
    running.end(requests[0])
    running.end(requests[0])
    assert (running.at_work, running.is_full) == (1, False)
    running.discard(requests[0])
    running.discard(requests[1])
    running.discard(requests[1])
    assert (running.at_work, running.has_short) == (0, False)


@pytest.mark.parametrize(("max_requests", "client_limit"), [(1, 1), (2, 1), (5, 2), (1000, 500)])
def test_one_client_has_at_most_half(max_requests: int, client_limit: int) -> None:
    running = Running(max_requests)
    requests = [Request() for _ in range(client_limit)]
    for one in requests:
        assert not running.is_at_client_limit("10.0.0.1")
        running.begin(one)
    assert (running.is_at_client_limit("10.0.0.1"), running.is_at_client_limit("10.0.0.2")) == (True, False)
    running.end(requests[0])
    assert not running.is_at_client_limit("10.0.0.1")
    for one in requests:
        running.end(one)
    assert running._at_work_by_client == {}


def test_a_request_moves_to_its_principal() -> None:
    """Whether it is at work already or not."""
    running, at_work, arriving = Running(4), Request(), Request()
    running.begin(at_work)
    for one in (at_work, arriving):
        running.move(one, "ann")
    running.begin(arriving)
    assert (running.at_work, running._at_work_by_client) == (2, {"ann": 2})
    assert (running.is_at_client_limit("ann"), running.is_at_client_limit("10.0.0.1")) == (True, False)
    for one in (at_work, arriving):
        running.end(one)
    assert (running.at_work, running._at_work_by_client) == (0, {})


@pytest.mark.parametrize(
    ("principal", "key"),
    [
        (Principal(subject="ann", issuer="https://login"), "https://login\0ann"),
        (Principal(subject="10.0.0.1"), "\x0010.0.0.1"),
        (Principal(roles=frozenset({"editor"})), "10.0.0.1"),
        (ANONYMOUS, "10.0.0.1"),
    ],
)
def test_the_client_of_a_principal(principal: Principal, key: str) -> None:
    assert principal_key(principal, "10.0.0.1") == key


def test_long_answers_do_not_wait_for_each_other() -> None:
    running, one, other, gone = Running(), Request(), Request(), Request()
    for request in (one, other):
        running.add(request, 0.0)
        running.begin(request)
    for request in (one, one, gone):
        running.expect_long(request)
    assert (running.long, running.has_short) == (1, True)
    running.expect_long(other)
    assert (running.long, running.has_short) == (2, False)
    for request in (one, other):
        running.discard(request)
        running.discard(request)
    assert (running.at_work, running.long) == (0, 0)


def test_short_answers_are_remembered_until_somebody_asks() -> None:
    running, long, short = Running(), Request(), Request()
    running.begin(long)
    running.expect_long(long)
    assert not running.had_short()
    running.begin(short)
    running.move(short, "10.0.0.2")
    assert [running.had_short(), running.had_short()] == [True, True]
    running.end(short)
    assert [running.had_short(), running.had_short()] == [True, False]
    running.begin(short)
    running.move(short, "10.0.0.3")
    running.expect_long(short)
    running.end(short)
    running.end(long)
    assert not running.had_short()


async def test_drain_waits_for_all_requests() -> None:
    running, first, second = Running(), Request(), Request()
    running.add(first, 0.0)
    drained = asyncio.ensure_future(running.drain())
    await asyncio.sleep(0)
    running.add(second, 0.0)
    running.discard(first)
    await asyncio.sleep(0)
    assert (first.is_shut_down, second.is_shut_down, drained.done()) == (True, True, False)
    running.discard(second)
    await asyncio.wait_for(drained, 60.0)
    await running.drain()
