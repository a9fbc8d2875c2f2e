"""How many rows of a list without pages are read before it is streamed."""

from __future__ import annotations

import pytest

from querybuild.planning import planner
from server.engine import Engine


def set_first_rows(patch: pytest.MonkeyPatch, count: int, *engines: Engine) -> None:
    """Stream longer lists. engines: those that may have planned some already."""
    patch.setattr(planner, "FIRST_ROWS", count)
    for engine in engines:
        for cache in engine.caches.values():
            cache._entries.clear()
            cache.bytes = 0
