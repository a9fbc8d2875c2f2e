"""The shares of clients, and what a client with short uses borrows beyond its share."""

from __future__ import annotations

import pytest

from server.postgres.sharing import shares
from server.postgres.sharing.shares import MAX_CLIENTS, SHORT_SECONDS, Shares


class Clock:
    """Replaces the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shares, "time", clock)
    return clock


def taken(turns: Shares, client: str, most: int = 10) -> int:
    return sum(turns.take(client) for _ in range(most))


def use_shortly(turns: Shares, client: str) -> None:
    assert turns.take(client)
    turns.use(client, "a thing")
    turns.give_back(client, "a thing")


def test_a_client_holds_at_most_its_share_and_the_server_has_no_limit(clock: Clock) -> None:
    turns = Shares(3)
    assert taken(turns, "a") == 3
    assert taken(turns, "b", 2) == 2
    assert (turns.may_take("a"), turns.may_take("b"), turns.may_take("c"), turns.may_take(None)) == (
        False,
        True,
        True,
        True,
    )
    assert all(turns.take(None) for _ in range(10))
    turns.give_back(None)
    turns.give_back("a")
    assert taken(turns, "a") == 1


def test_a_client_borrows_while_its_last_use_was_short(clock: Clock) -> None:
    turns = Shares(3, 5)
    assert taken(turns, "new") == 3
    use_shortly(turns, "a")
    assert taken(turns, "a") == 5
    use_shortly(turns, "b")
    clock.now += SHORT_SECONDS * 1.01
    assert taken(turns, "b") == 3


def test_a_client_with_a_long_use_borrows_nothing(clock: Clock) -> None:
    turns = Shares(3, 5)
    assert turns.take("a")
    turns.use("a", "slow")
    clock.now += SHORT_SECONDS * 1.01
    use_shortly(turns, "a")
    assert taken(turns, "a") == 2
    turns.give_back("a", "slow")
    # The long one has ended: the short one before it still counts.
    assert taken(turns, "a") == 3


def test_clients_that_hold_and_borrow_nothing_are_forgotten() -> None:
    turns = Shares(3)
    use_shortly(turns, "a")
    assert turns._shares == {}


def test_the_short_uses_of_a_limited_number_of_clients_are_remembered(clock: Clock) -> None:
    turns = Shares(3, 5)
    assert turns.take("holds")
    for number in range(3 * MAX_CLIENTS):
        use_shortly(turns, str(number))
    assert len(turns._shares) <= MAX_CLIENTS
    assert taken(turns, "holds") == 2
