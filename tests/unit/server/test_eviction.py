"""The connection with the least progress is evicted first. No sockets."""

from __future__ import annotations

import logging

import msgspec
import pytest

from server.http.transport.closings import LOG_INTERVAL_SECONDS, MAX_CLIENTS, OTHERS, Closings, Reason
from server.http.transport.eviction import (
    HALF_LIFE_SECONDS,
    RANKED_SECONDS,
    RETRY_SECONDS,
    SETTLED_SECONDS,
    EvictionGroup,
    Progress,
    decay_over,
)


class Connection(msgspec.Struct, eq=False):
    name: str
    moved_bytes: int = 0
    is_at_work: bool = False


def group(*members: tuple[Connection, float]) -> EvictionGroup[Progress]:
    """Return the connections, each with the time at which it joined."""
    made: EvictionGroup[Progress] = EvictionGroup()
    for connection, joined_at in members:
        made.add(Progress(connection, "client", joined_at))
    return made


def in_turn(of: EvictionGroup[Progress], now: float) -> list[str]:
    """Return the connections in the order of their eviction."""
    names = []
    while (one := of.least(now)) is not None:
        names.append(one.connection.name)  # type: ignore[attr-defined]  # it is one of the above
        of.discard(one.connection)
    return names


NOW = 100.0
YOUNG = NOW - SETTLED_SECONDS / 2


@pytest.mark.parametrize(
    ("members", "order"),
    [
        ([("a", 5, 0.0), ("b", 3, 0.0), ("c", 4, 0.0)], ["b", "c", "a"]),
        ([("young", 0, YOUNG), ("old", 1_000_000, 0.0)], ["old", "young"]),
        ([("later", 0, YOUNG + 0.1), ("before", 9, YOUNG)], ["before", "later"]),
        ([("first", 0, 0.0), ("second", 0, 1.0)], ["first", "second"]),
    ],
    ids=["least first", "young last", "of young ones the oldest", "equal ones"],
)
def test_the_order(members: list[tuple[str, int, float]], order: list[str]) -> None:
    own = group(*((Connection(name, moved), joined_at) for name, moved, joined_at in members))
    assert in_turn(own, NOW) == order


def test_connections_at_work_are_not_evicted() -> None:
    """Also if the work began after the ranking."""
    first, second, third = Connection("a", 1, is_at_work=True), Connection("b", 2), Connection("c", 3)
    own = group((first, 0.0), (second, 0.0), (third, 0.0))
    assert own.least(NOW) is not None
    third.is_at_work = True
    own.discard(second)
    assert own.least(NOW) is None


def test_a_search_without_result_is_not_repeated_at_once() -> None:
    only = Connection("a", is_at_work=True)
    own = group((only, 0.0))
    assert own.least(NOW) is None
    only.is_at_work = False
    assert own.least(NOW + RETRY_SECONDS / 2) is None
    assert own.least(NOW + RETRY_SECONDS) is not None


def test_bytes_moved_since_the_ranking_count() -> None:
    slow, quick, other = Connection("slow", 2), Connection("quick", 1), Connection("other", 0)
    own = group((slow, 0.0), (quick, 0.0), (other, 0.0))
    assert in_turn(group((other, 0.0)), NOW) == ["other"]
    found = own.least(NOW)
    assert found is not None
    assert found.connection is other
    own.discard(other)
    quick.moved_bytes = 1000
    assert in_turn(own, NOW + RANKED_SECONDS / 2) == ["slow", "quick"]


def test_old_progress_counts_less() -> None:
    """A connection that moved many bytes long ago is evicted before one that moves some now."""
    before, now = Connection("before", 1000), Connection("now")
    own = group((before, 0.0), (now, 0.0))
    for _ in range(11):
        for one in own:
            one.update(decay_over(HALF_LIFE_SECONDS))
        now.moved_bytes += 1
    assert in_turn(own, NOW) == ["before", "now"]


def test_many_closed_connections_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are counted; normal ends are not logged."""
    now, counted = 100.0, list[Reason]()
    monkeypatch.setattr("server.http.transport.closings.time.monotonic", lambda: now)
    closings = Closings(counted.append)
    for reason, client in [(Reason.CONNECTIONS, "a"), (Reason.CONNECTIONS, "b"), (Reason.CONNECTIONS, "b")]:
        closings.record(reason, client)
    closings.record(Reason.IDLE, "c")
    closings.log_closings()
    closings.record(Reason.CLIENT, "d")
    closings.log_closings()
    assert len(caplog.records) == 1
    now += LOG_INTERVAL_SECONDS
    closings.log_closings()
    closings.log_closings(is_last=True)
    assert caplog.messages == [
        "3 connections were closed to make room for others: max_connections is reached (2 of b)",
        "1 connections were closed of clients that have reached max_connections_per_client (1 of d)",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert counted == [Reason.CONNECTIONS] * 3 + [Reason.IDLE, Reason.CLIENT]


def test_many_addresses_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    closings = Closings()
    for number in range(3 * MAX_CLIENTS):
        closings.record(Reason.CONNECTIONS, str(number))
    closings.log_closings()
    [message] = caplog.messages
    assert message.endswith(f"({2 * MAX_CLIENTS} of {OTHERS})")
