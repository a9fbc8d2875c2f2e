"""Answers the preflight requests of browsers for a page of another origin (CORS)."""

from __future__ import annotations

from typing import Any

from server.handlers.base import Handler
from server.http.cors import preflight_headers


class PreflightHandler(Handler):
    """Allows the request that follows. The answer is the same for every path."""

    def prepare(self) -> None:
        """Check nothing. An error is the answer to the request that follows, where the page can read it."""

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        for name, value in preflight_headers(self.request.headers).items():
            self.set_header(name, value)
