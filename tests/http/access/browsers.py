"""A browser for tests: it keeps cookies, and says where its requests come from."""

from __future__ import annotations

from urllib.parse import urlencode

from tests.http.conftest import Answer, Api
from tests.http.pages.html import BROWSER
from tests.http.pages.sending import FORM

PUBLIC = "http://127.0.0.1:4711/shop"
"""The public URL of the servers. A proxy would remove the prefix."""


class Browser:
    """A browser with its cookies."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}
        self.set: list[str] = []

    async def open(self, path: str, site: str = "none") -> Answer:
        """Open an address. site: where the link was."""
        return await self.send("GET", path, site, "navigate", Accept=BROWSER)

    async def fetch(self, path: str, site: str = "same-origin", **headers: str) -> Answer:
        """Send what a script sends."""
        return await self.send("GET", path, site, "cors", **headers)

    async def post(self, path: str, fields: dict[str, str] | None = None, site: str = "same-origin") -> Answer:
        """Send a form."""
        headers = {"Accept": BROWSER, "Content-Type": FORM}
        return await self.send("POST", path, site, "navigate", urlencode(fields or {}), **headers)

    async def send(
        self, method: str, path: str, site: str, mode: str, body: str | None = None, **headers: str
    ) -> Answer:
        sent = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self.api.request(method, path, body=body, headers=sent)
        self.set = answer.headers.get_list("Set-Cookie")
        for cookie in self.set:
            pair, _, attributes = cookie.partition("; ")
            name, _, value = pair.partition("=")
            if "Max-Age=0" in attributes:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer
