"""Defines a statement: an SQL text, and where the values of its parameters come from."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from querybuild.planning.plan import Slot


class Statement(msgspec.Struct, frozen=True):
    """An SQL text, and the slots of its parameters $1, $2, ... decides_again: it locks rows by criteria that read other
    rows, so it is run twice (`locks.py`). request_indexes: the indexes of the slots, if all values are the request's,
    otherwise None."""

    sql: str
    slots: tuple[Slot, ...]
    decides_again: bool = False
    request_indexes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if all(slot.source == "request" for slot in self.slots):
            force_setattr(self, "request_indexes", tuple([slot.index for slot in self.slots]))
