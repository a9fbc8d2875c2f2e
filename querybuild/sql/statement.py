"""Defines a statement: an SQL text, and where the values of its parameters come from."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from querybuild.planning.row_plan import Slot


class Statement(msgspec.Struct, frozen=True):
    """An SQL text, and the slots of its parameters $1, $2, ... decides_again: it locks rows by criteria that read other
    rows, so it is run twice (`writes/locks.py`). positions: those of the slots."""

    sql: str
    slots: tuple[Slot, ...]
    decides_again: bool = False
    positions: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "positions", tuple([slot.position for slot in self.slots]))
