"""Defines a statement: an SQL text, and where the values of its parameters come from."""

from __future__ import annotations

import msgspec

from querybuild.planning.plan import Slot


class Statement(msgspec.Struct, frozen=True):
    """An SQL text, and the slots of its parameters $1, $2, ... decides_again: it locks rows by criteria that read other
    rows, so it is run twice (`locks.py`)."""

    sql: str
    slots: tuple[Slot, ...]
    decides_again: bool = False
