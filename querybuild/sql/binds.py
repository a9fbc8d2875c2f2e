"""Numbers the parameters of a statement: $1, $2, ... What comes in: slots. What goes out: PyPika parameters, and the
slots in their order.

It must not know: values. A slot only says where a value will come from.
"""

from __future__ import annotations

from pypika import Parameter

from querybuild.planning.row_plan import Slot


class Binds:
    """The parameters of one statement."""

    def __init__(self) -> None:
        self._numbers: dict[Slot, int] = {}

    def __call__(self, slot: Slot) -> Parameter:
        """Return the parameter of a slot. It is always the same one for the same slot."""
        number = self._numbers.setdefault(slot, len(self._numbers) + 1)
        return Parameter(f"${number}")

    def request(self, index: int) -> Parameter:
        """Return the parameter of a value of the request."""
        return self(Slot("request", index))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots in the order of their parameters."""
        return tuple(self._numbers)
