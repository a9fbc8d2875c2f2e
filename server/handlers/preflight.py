"""A browser asks whether a page of another origin may ask. What comes in: an OPTIONS request for any path. What goes
out: that it may, alike for all of them."""

from __future__ import annotations

from typing import Any

from server.handlers.base import Handler
from server.http.cors import preflight_headers


class PreflightHandler(Handler):
    def prepare(self) -> None:
        """Nothing is said against the request that is to follow: its own answer is one that the page can read."""

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        for name, value in preflight_headers(self.request.headers).items():
            self.set_header(name, value)
