"""Sessions that several workers renew at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import pytest

from server.authentication.signing_in import renewals as module
from server.authentication.signing_in.renewals import SLOT_BYTES, SLOTS, Renewals

FORK = multiprocessing.get_context("fork")


def test_what_was_renewed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    renewals = Renewals()
    with renewals.locked("old") as is_locked:
        assert is_locked
        assert renewals.get("old") is None
        renewals.put("old", b"new")
        assert renewals.get("old") == b"new"
        renewals.put("old", b"")
        assert renewals.get("old") == b""
        now = time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + 61)
        assert renewals.get("old") is None


def test_tokens_share_slots() -> None:
    renewals = Renewals()
    tokens = [str(number) for number in range(20_000)]
    for token in tokens:
        with renewals.locked(token):
            renewals.put(token, token.encode())
    known = {token: renewals.get(token) for token in tokens}
    assert 4000 <= len([token for token in tokens if known[token] == token.encode()]) <= SLOTS
    assert all(value in (None, token.encode()) for token, value in known.items())


def test_what_is_too_large_is_not_kept() -> None:
    renewals = Renewals()
    renewals.put("old", b"x" * SLOT_BYTES)
    assert renewals.get("old") is None


def test_a_worker_has_one_lock() -> None:
    renewals = Renewals()
    with renewals.locked("one"):
        with renewals.locked("one") as is_locked:
            assert not is_locked
        # The inner one must not release the lock of the outer one.
        assert _locked_elsewhere(renewals)
    assert not _locked_elsewhere(renewals)
    with renewals.locked("one") as is_locked:
        assert is_locked


def _locked_elsewhere(renewals: Renewals) -> bool:
    ours, theirs = FORK.Pipe()

    def try_lock(pipe: Connection) -> None:
        renewals._locked.clear()
        with renewals.locked("one") as is_locked:
            pipe.send(is_locked)

    process = FORK.Process(target=try_lock, args=(theirs,))
    process.start()
    found = ours.recv()
    process.join()
    return not found


def test_one_of_many_workers_renews() -> None:
    renewals, results = Renewals(), FORK.Queue()
    # Of two tokens in one slot, only the last one is known.
    tokens = list({module._slot(str(number)): str(number) for number in range(200)}.values())[:50]

    def work(queue: Any) -> None:
        for token in tokens:
            made = 0
            while True:
                with renewals.locked(token) as is_locked:
                    if is_locked:
                        if renewals.get(token) is None:
                            time.sleep(0.001)
                            renewals.put(token, str(os.getpid()).encode())
                            made = 1
                        queue.put((token, made, renewals.get(token)))
                        break
                time.sleep(0.0005)

    processes = [FORK.Process(target=work, args=(results,)) for _ in range(6)]
    for one in processes:
        one.start()
    found = [results.get(timeout=60) for _ in range(300)]
    for one in processes:
        one.join()
    for token in tokens:
        of_one = [(made, value) for which, made, value in found if which == token]
        assert sum(made for made, _ in of_one) == 1
        assert len({value for _, value in of_one}) == 1


def test_a_worker_that_is_killed_keeps_no_lock() -> None:
    renewals = Renewals()
    ours, theirs = FORK.Pipe()

    def hold(pipe: Connection) -> None:
        with renewals.locked("one"):
            pipe.send(True)
            time.sleep(60)

    process = FORK.Process(target=hold, args=(theirs,))
    process.start()
    assert ours.recv()
    with renewals.locked("one") as is_locked:
        assert not is_locked
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with renewals.locked("one") as is_locked:
        assert is_locked
