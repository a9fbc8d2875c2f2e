"""Hands out $1, $2, ... and keeps where each value comes from. What comes in: slots. What goes out: PyPika
parameters, and the slots in their order.

No value passes through here: it sees only where values will come from.
"""

from __future__ import annotations

from pypika import Parameter

from querybuild.plan import Slot


class Binds:
    """One statement's parameters."""

    def __init__(self) -> None:
        self._numbers: dict[Slot, int] = {}

    def __call__(self, slot: Slot) -> Parameter:
        """The parameter of a slot: the same one each time it is asked for."""
        number = self._numbers.setdefault(slot, len(self._numbers) + 1)
        return Parameter(f"${number}")

    def request(self, index: int) -> Parameter:
        return self(Slot("request", index))

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._numbers)
