"""Compares what the clients were told with what is in the database. In: the accounts of client processes and the rows
of the database. Out: the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

Fate = Literal["done", "not done", "maybe"]
ALLOWED = {"done": (1,), "not done": (0,), "maybe": (0, 1)}


class Row(msgspec.Struct):
    """A row that only one connection writes. value: the last value that its client knows to be stored. maybe: values
    that may have been written, or may still be written, by statements that were in progress when the network failed."""

    value: str
    maybe: list[str] = []

    def told(self, value: str, fate: Fate) -> None:
        if fate == "done":
            self.value = value
        elif fate == "maybe":
            self.maybe.append(value)

    def may_be(self, value: str | None) -> bool:
        return value == self.value or value in self.maybe


class Account(msgspec.Struct):
    """What one client process has seen. answers: the number for each kind of request, status and code. created: names.
    deleted: names. rows: by id. wrong: answers that no client should get. lost: when connections ended during a
    request, as times of the monotonic clock. longest_seconds: the longest time of a request, answered or not."""

    answers: dict[str, int] = {}
    created: dict[str, Fate] = {}
    deleted: dict[str, Fate] = {}
    rows: dict[str, Row] = {}
    wrong: list[str] = []
    lost: list[float] = []
    longest_seconds: float = 0.0


class Found(msgspec.Struct, frozen=True):
    """A computer that is in the database."""

    id: str
    name: str
    serial: str | None


def disagreements(accounts: Iterable[Account], found: Iterable[Found]) -> dict[str, list[str]]:
    """Return the rows that contradict an account. lost: reported as written, but missing. doubled: exist more than
    once. undone: reported as failed, but written. halves: only one of two rows that were written together exists."""
    rows = list(found)
    names, by_id = Counter(row.name for row in rows), {row.id: row for row in rows}
    wrong: dict[str, list[str]] = {"lost": [], "doubled": [], "undone": [], "halves": []}
    for account in accounts:
        for name, fate in account.created.items():
            if names[name] > 1:
                wrong["doubled"].append(name)
            elif names[name] not in ALLOWED[fate] and not _is_deleted(name, account):
                wrong["undone" if names[name] else "lost"].append(name)
            if name.endswith("-a") and names[name] != names[name[:-1] + "b"]:
                wrong["halves"].append(name)
        for own, row in account.rows.items():
            if own not in by_id or not row.may_be(by_id[own].serial):
                wrong["lost"].append(f"{own}: {by_id.get(own)} is not {row}")
        for name, fate in account.deleted.items():
            if fate != "maybe" and names[name] != (fate == "not done"):
                wrong["undone" if names[name] == 0 else "lost"].append(f"deleted {name}")
    return wrong


def _is_deleted(name: str, account: Account) -> bool:
    """Return whether it was deleted later; `account.deleted` says with what result."""
    return name in account.deleted
