"""Lets a person choose who to be, where the settings allow it."""

from __future__ import annotations

from urllib.parse import quote

from server.authentication.chosen import COOKIE
from server.errors import RouteNotFound
from server.handlers.pages.form_base import FormHandler


class ChooseHandler(FormHandler):
    """Sets the cookie that names the principal."""

    async def post(self) -> None:
        chosen = self.engine.authenticator.chosen
        if chosen is None:
            raise RouteNotFound("Nobody can be chosen here.")
        name = self.read_form().get("name", "")
        value = quote(name, safe="") if name in chosen.by_name else ""
        ends = "" if value else "; Max-Age=0"
        self.set_header("Set-Cookie", f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax{ends}")
        self.set_header("Cache-Control", "no-store")
        self.set_status(303)
        self.set_header("Location", f"{self.base_url}/")
        self.clear_header("Content-Type")
        self.finish()
