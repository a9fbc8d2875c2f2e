"""Shares a limited resource fairly among clients: counts what each holds, and chooses whose turn is next.

It must not know: what is shared, and how much of it is free.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

Turn = asyncio.Future[Any]

SHORT_SECONDS = 0.05
"""A use is short if it takes less than this."""

MAX_CLIENTS = 1000
"""How many clients are remembered with their last short use."""


class Share:
    """The share of one client. held: how many it holds. since: when it began to use each of them, the oldest first.
    short_at: when its last short use ended. Times are by the monotonic clock."""

    __slots__ = ("held", "short_at", "since")

    def __init__(self) -> None:
        self.held = 0
        self.since: dict[Any, float] = {}
        self.short_at = float("-inf")


class Shares:
    """The shares of all clients, and the requests that wait.

    The waiting clients take turns. Each client's requests keep their order. A client that holds its full share is
    skipped. The client None is the server itself, which has no limit.

    A client whose uses are all short borrows beyond its share. Otherwise its requests would wait for each other, which
    costs a tenth of a small request, while the rest is unused. It stops borrowing when one of its uses takes long."""

    def __init__(self, limit: int, borrow_limit: int = 0) -> None:
        """limit: how many one client may hold. borrow_limit: how many while its uses are short."""
        self._limit = limit
        self._borrow_limit = borrow_limit
        self._shares: dict[str, Share] = {}
        # How many clients hold more than their share.
        self._borrowers = 0
        self.waiting: dict[str | None, dict[Turn, None]] = {}

    def __len__(self) -> int:
        """Return how many requests wait."""
        return sum(map(len, self.waiting.values()))

    def may_take(self, client: str | None) -> bool:
        """Return whether the client holds less than its share."""
        return client is None or client not in self._shares or self._shares[client].held < self._limit

    def is_crowded_out(self, client: str | None) -> bool:
        """Return whether the client holds nothing while another one holds more than its share. False for the server
        itself."""
        if not self._borrowers or client is None:
            return False
        share = self._shares.get(client)
        return share is None or not share.held

    def take(self, client: str | None) -> bool:
        """Take one for the client. Returns false if the client may not have one more."""
        if client is None:
            return True
        share = self._shares.get(client)
        if share is None:
            share = self._add(client)
        elif share.held >= self._limit and not self._may_borrow(share):
            return False
        share.held += 1
        if share.held == self._limit + 1:
            self._borrowers += 1
        return True

    def _add(self, client: str) -> Share:
        if len(self._shares) >= MAX_CLIENTS:
            self._shares = {holder: share for holder, share in self._shares.items() if share.held}
        share = self._shares[client] = Share()
        return share

    def _may_borrow(self, share: Share) -> bool:
        if share.held >= self._borrow_limit:
            return False
        now = time.monotonic()
        if now - share.short_at > SHORT_SECONDS:
            return False
        # The first is the oldest. Those that are just being handed over are not in the dictionary yet.
        return now - next(iter(share.since.values()), now) < SHORT_SECONDS

    def use(self, client: str | None, thing: object) -> None:
        """Record that the client begins to use one of those that it holds."""
        if self._borrow_limit and client is not None:
            self._shares[client].since[thing] = time.monotonic()

    def give_back(self, client: str | None, thing: object = None) -> None:
        """Take one back from the client. thing: the one that `use` was called with, if it was used."""
        if client is None:
            return
        share = self._shares[client]
        if share.held == self._limit + 1:
            self._borrowers -= 1
        share.held -= 1
        since = share.since.pop(thing, None)
        if since is not None and (now := time.monotonic()) - since < SHORT_SECONDS:
            share.short_at = now
        elif not share.held:
            del self._shares[client]

    def wait(self, client: str | None) -> Turn:
        """Return a turn for the client to await. When `next` returns it, the client holds one more, and the caller of
        `next` sets the result."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(client, {})[turn] = None
        return turn

    def leave(self, client: str | None, turn: Turn) -> None:
        """Remove a turn that is not awaited any more."""
        turns = self.waiting.get(client)
        if turns is not None and turn in turns:
            del turns[turn]
            if not turns:
                del self.waiting[client]

    def next(self, *, of_crowded_out: bool = False) -> Turn | None:
        """Take one for the next waiting client, and return its turn. Return None if no waiting client may take one.
        of_crowded_out: only clients for which `is_crowded_out` is true."""
        if not self.waiting:
            return None
        for client in list(self.waiting):
            turns = self.waiting[client]
            while turns and next(iter(turns)).done():
                del turns[next(iter(turns))]
            if not turns:
                del self.waiting[client]
            elif (not of_crowded_out or self.is_crowded_out(client)) and self.take(client):
                turn = next(iter(turns))
                # The other clients come before this client's next request.
                del self.waiting[client], turns[turn]
                if turns:
                    self.waiting[client] = turns
                return turn
        return None
