"""The memory for bodies: who has room, and who goes for it."""

from __future__ import annotations

import pytest

from server import bodies
from server.bodies import Bodies


class Holder:
    def __init__(self, *, is_arriving: bool = True) -> None:
        self.body_bytes = 0
        self.is_arriving = is_arriving
        self.fell = False

    def evict(self, why: str) -> None:
        self.fell = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every half body has taken long."""
    monkeypatch.setattr(bodies, "SETTLED_SECONDS", -1.0)


def held(those: Bodies, *sizes: int, is_arriving: bool = True) -> list[Holder]:
    holders = [Holder(is_arriving=is_arriving) for _ in sizes]
    for one, size in zip(holders, sizes, strict=True):
        assert those.hold(one, size)
    return holders


def test_there_is_room_up_to_the_bound() -> None:
    those = Bodies(100)
    held(those, 60, 30)
    assert (those.has_room(10), those.has_room(11)) == (True, False)
    assert (those.hold(Holder(), 10), those.hold(Holder(), 1)) == (True, False)


def test_what_is_released_makes_room() -> None:
    those = Bodies(100)
    one, _ = held(those, 60, 40)
    those.release(one)
    those.release(one)
    assert (one.body_bytes, those.has_room(60), those.has_room(61)) == (0, True, False)


def test_one_alone_has_room_whatever_its_length() -> None:
    those = Bodies(100)
    assert those.has_room(1000)
    (one,) = held(those, 60)
    assert those.hold(one, 900)
    assert not those.hold(Holder(), 1)


def test_half_bodies_that_take_long_go_oldest_first(slow: None) -> None:
    those = Bodies(100)
    first, second, third = held(those, 30, 30, 40)
    assert those.has_room(35)
    assert those.hold(Holder(), 35)
    assert [one.fell for one in (first, second, third)] == [True, True, False]
    assert those.has_room(5)


def test_half_bodies_that_are_young_stay() -> None:
    those = Bodies(100)
    one, other = held(those, 60, 40)
    assert (those.has_room(1), those.hold(Holder(), 1), one.fell, other.fell) == (False, False, False, False)


def test_bodies_at_work_stay(slow: None) -> None:
    those = Bodies(100)
    one, other = held(those, 60, 40, is_arriving=False)
    assert (those.has_room(1), those.hold(Holder(), 1), one.fell, other.fell) == (False, False, False, False)


def test_a_body_does_not_go_for_its_own_rest(slow: None) -> None:
    those = Bodies(100)
    (one,) = held(those, 60)
    (other,) = held(those, 40, is_arriving=False)
    assert (those.hold(one, 10), one.fell, other.fell) == (False, False, False)
