"""The event loop of the server, for tests that depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop
from tornado.ioloop import IOLoop

from tests.conftest import end_loop


@pytest.fixture
def io_loop() -> Iterator[IOLoop]:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    yield IOLoop(asyncio_loop=loop, make_current=False)  # type: ignore[abstract]
    asyncio.set_event_loop(None)
    end_loop(loop)
