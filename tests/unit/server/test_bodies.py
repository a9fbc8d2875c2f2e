"""The memory for bodies: which body is accepted, and which is evicted for it."""

from __future__ import annotations

import pytest

from server.limits import bodies
from server.limits.bodies import Bodies


class Holder:
    def __init__(self, *, is_arriving: bool = True) -> None:
        self.body_bytes = 0
        self.is_arriving = is_arriving
        self.is_evicted = False

    def evict(self, why: str) -> None:
        self.is_evicted = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every incomplete body may be evicted."""
    monkeypatch.setattr(bodies, "EVICTABLE_AFTER_SECONDS", -1.0)


def held(memory: Bodies, *sizes: int, is_arriving: bool = True) -> list[Holder]:
    holders = [Holder(is_arriving=is_arriving) for _ in sizes]
    for one, size in zip(holders, sizes, strict=True):
        assert memory.hold(one, size)
    return holders


def test_there_is_room_up_to_the_limit() -> None:
    memory = Bodies(100)
    held(memory, 60, 30)
    assert (memory.has_room(10), memory.has_room(11)) == (True, False)
    assert (memory.hold(Holder(), 10), memory.hold(Holder(), 1)) == (True, False)


def test_released_bytes_make_room() -> None:
    memory = Bodies(100)
    one, _ = held(memory, 60, 40)
    memory.release(one)
    memory.release(one)
    assert (one.body_bytes, memory.has_room(60), memory.has_room(61)) == (0, True, False)


def test_a_single_body_has_room_whatever_its_length() -> None:
    memory = Bodies(100)
    assert memory.has_room(1000)
    (one,) = held(memory, 60)
    assert memory.hold(one, 900)
    assert not memory.hold(Holder(), 1)


def test_slow_bodies_are_evicted_oldest_first(slow: None) -> None:
    memory = Bodies(100)
    first, second, third = held(memory, 30, 30, 40)
    assert memory.has_room(35)
    assert memory.hold(Holder(), 35)
    assert [one.is_evicted for one in (first, second, third)] == [True, True, False]
    assert memory.has_room(5)


def test_young_bodies_are_not_evicted() -> None:
    memory = Bodies(100)
    first, second = held(memory, 60, 40)
    assert (memory.has_room(1), memory.hold(Holder(), 1), first.is_evicted, second.is_evicted) == (False,) * 4


def test_complete_bodies_are_not_evicted(slow: None) -> None:
    memory = Bodies(100)
    first, second = held(memory, 60, 40, is_arriving=False)
    assert (memory.has_room(1), memory.hold(Holder(), 1), first.is_evicted, second.is_evicted) == (False,) * 4


def test_a_body_is_not_evicted_for_its_own_bytes(slow: None) -> None:
    memory = Bodies(100)
    (one,) = held(memory, 60)
    (other,) = held(memory, 40, is_arriving=False)
    assert (memory.hold(one, 10), one.is_evicted, other.is_evicted) == (False, False, False)
