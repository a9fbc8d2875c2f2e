"""The shares of clients in something that all of them use. In: clients that take, wait and give back. Out: whose turn
it is.

Nothing here knows what is shared, or how much of it is free.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

Turn = asyncio.Future[Any]

SHORT_SECONDS = 0.05
"""What is used for less is used for a short time."""

MOST_CLIENTS = 1000
"""Whose last short use is remembered."""


class Share:
    """What one client holds. held: how many. since: when it began to use each of them, the oldest first. short_at: when
    it last gave back one that it had used for a short time. Both by the monotonic clock."""

    __slots__ = ("held", "short_at", "since")

    def __init__(self) -> None:
        self.held = 0
        self.since: dict[Any, float] = {}
        self.short_at = float("-inf")


class Shares:
    """How many each client holds, and the requests that wait.

    The clients that wait take turns, each with its own requests in their order. A client that holds as many as it may
    is passed over. A client of None has no limit: it is the server itself.

    A client whose uses are all short borrows beyond its share: it would else wait for its own requests, a tenth of a
    small one, and nobody else could use what is free. As soon as one of its uses takes long it borrows no more.
    """

    def __init__(self, most: int, most_borrowing: int = 0) -> None:
        """most: how many one client may hold. most_borrowing: how many while its uses are short."""
        self._most = most
        self._most_borrowing = most_borrowing
        self._shares: dict[str, Share] = {}
        self.waiting: dict[str | None, dict[Turn, None]] = {}

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(map(len, self.waiting.values()))

    def may_take(self, client: str | None) -> bool:
        """Whether the client holds less than its share."""
        return client is None or client not in self._shares or self._shares[client].held < self._most

    def take(self, client: str | None) -> bool:
        """Whether the client may have one more, which it then holds."""
        if client is None:
            return True
        share = self._shares.get(client)
        if share is None:
            share = self._add(client)
        elif share.held >= self._most and not self._may_borrow(share):
            return False
        share.held += 1
        return True

    def _add(self, client: str) -> Share:
        if len(self._shares) >= MOST_CLIENTS:
            self._shares = {one: share for one, share in self._shares.items() if share.held}
        share = self._shares[client] = Share()
        return share

    def _may_borrow(self, share: Share) -> bool:
        if share.held >= self._most_borrowing:
            return False
        now = time.monotonic()
        if now - share.short_at > SHORT_SECONDS:
            return False
        # The first one is the oldest. Those that are being handed over are not among them yet.
        return now - next(iter(share.since.values()), now) < SHORT_SECONDS

    def use(self, client: str | None, thing: object) -> None:
        """The client begins to use one of those that it holds."""
        if self._most_borrowing and client is not None:
            self._shares[client].since[thing] = time.monotonic()

    def give_back(self, client: str | None, thing: object = None) -> None:
        """thing: where it has been used."""
        if client is None:
            return
        share = self._shares[client]
        share.held -= 1
        since = share.since.pop(thing, None)
        if since is not None and (now := time.monotonic()) - since < SHORT_SECONDS:
            share.short_at = now
        elif not share.held:
            del self._shares[client]

    def wait(self, client: str | None) -> Turn:
        """A turn of the client's, to be awaited. Its result is what `next` is called for, and is held then."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(client, {})[turn] = None
        return turn

    def leave(self, client: str | None, turn: Turn) -> None:
        """It is not waited for any more."""
        turns = self.waiting.get(client)
        if turns is not None and turn in turns:
            del turns[turn]
            if not turns:
                del self.waiting[client]

    def next(self) -> Turn | None:
        """The next turn, taken for its client; None where nobody waits that may take one."""
        if not self.waiting:
            return None
        for client in list(self.waiting):
            turns = self.waiting[client]
            while turns and next(iter(turns)).done():
                del turns[next(iter(turns))]
            if not turns:
                del self.waiting[client]
            elif self.take(client):
                turn = next(iter(turns))
                # The other clients come before this one's next request.
                del self.waiting[client], turns[turn]
                if turns:
                    self.waiting[client] = turns
                return turn
        return None
