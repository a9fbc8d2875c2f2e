"""The shares of clients in something that all of them use. In: clients that take, wait and give back. Out: whose turn
it is.

Nothing here knows what is shared, or how much of it is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Turn = asyncio.Future[Any]


class Shares:
    """How many each client holds, and the requests that wait.

    The clients that wait take turns, each with its own requests in their order. A client that holds as many as it may
    is passed over. A client of None has no limit: it is the server itself. may_borrow: whether a client that holds so
    many may have one more than its share all the same.
    """

    def __init__(self, most: int, may_borrow: Callable[[str, int], bool] = lambda client, held: False) -> None:
        self._most = most
        self._may_borrow = may_borrow
        self._held: dict[str, int] = {}
        self._waiting: dict[str | None, dict[Turn, None]] = {}

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiting.values()))

    def may_take(self, client: str | None) -> bool:
        return client is None or self._held.get(client, 0) < self._most

    def take(self, client: str | None) -> bool:
        """Whether the client may have one more, which it then holds."""
        if client is None:
            return True
        held = self._held.get(client, 0)
        if held >= self._most and not self._may_borrow(client, held):
            return False
        self._held[client] = held + 1
        return True

    def give_back(self, client: str | None) -> None:
        if client is None:
            return
        held = self._held[client]
        if held == 1:
            del self._held[client]
        else:
            self._held[client] = held - 1

    def wait(self, client: str | None) -> Turn:
        """A turn of the client's, to be awaited. Its result is what `next` is called for, and is held then."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, {})[turn] = None
        return turn

    def leave(self, client: str | None, turn: Turn) -> None:
        """It is not waited for any more."""
        turns = self._waiting.get(client)
        if turns is not None and turn in turns:
            del turns[turn]
            if not turns:
                del self._waiting[client]

    def next(self) -> Turn | None:
        """The next turn, taken for its client; None where nobody waits that may take one."""
        if not self._waiting:
            return None
        for client in list(self._waiting):
            turns = self._waiting[client]
            while turns and next(iter(turns)).done():
                del turns[next(iter(turns))]
            if not turns:
                del self._waiting[client]
            elif self.take(client):
                turn = next(iter(turns))
                # The other clients come before this one's next request.
                del self._waiting[client], turns[turn]
                if turns:
                    self._waiting[client] = turns
                return turn
        return None
