"""What clients were told, and what the database says to it. In: the accounts of client processes and the rows that are
there. Out: what does not agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

Fate = Literal["done", "not done", "maybe"]
ALLOWED = {"done": (1,), "not done": (0,), "maybe": (0, 1)}


class Row(msgspec.Struct):
    """A row that one connection alone writes. value: the last that its client knows to be there. maybe: what may have
    been written, or be written yet, by a statement that was on the way when the network failed."""

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
    """One client process. answers: by kind of request, status and code. created: names. deleted: ids. rows: by id.
    wrong: answers that there must not be. lost: the moments at which connections ended under a request, by the
    monotonic clock. longest_seconds: of a request, answered or not."""

    answers: dict[str, int] = {}
    created: dict[str, Fate] = {}
    deleted: dict[str, Fate] = {}
    rows: dict[str, Row] = {}
    wrong: list[str] = []
    lost: list[float] = []
    longest_seconds: float = 0.0


class Found(msgspec.Struct, frozen=True):
    """A computer in the database."""

    id: str
    name: str
    serial: str | None


def disagreements(accounts: Iterable[Account], found: Iterable[Found]) -> dict[str, list[str]]:
    """lost: told to be done and not there. doubled: there more than once. undone: told not to be done and there.
    halves: of two that were written together."""
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
    """Which has an account of its own."""
    return name in account.deleted
