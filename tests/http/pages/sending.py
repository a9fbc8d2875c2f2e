"""Fills and sends forms as a browser does, for tests."""

from __future__ import annotations

from urllib.parse import urlencode

from tests.http.conftest import Answer, Api
from tests.http.pages.html import BROWSER, Element, browse

FORM = "application/x-www-form-urlencoded"


def filled(page: Element, **changes: str | None) -> dict[str, str]:
    """Return what a browser sends for the form of a page that writes. changes: of fields by their names, with `_`
    instead of `:`; None unchecks a box."""
    [form] = [one for one in page.all("form") if one.attributes.get("method") == "post" and one.all("input")][:1]
    found: dict[str, str] = {}
    for one in form.all("input"):
        kind = one.attributes.get("type", "text")
        if "name" in one.attributes and (kind not in ("checkbox", "radio") or "checked" in one.attributes):
            found[one["name"]] = one.attributes.get("value", "")
    for one in form.all("textarea"):
        # A browser leaves out the first line break of a textarea, and sends CRLF.
        text = "".join([part for part in one.content if isinstance(part, str)])
        found[one["name"]] = text.removeprefix("\n")
    for one in form.all("select"):
        options = one.all("option")
        chosen = [option for option in options if "selected" in option.attributes] or options[:1]
        found[one["name"]] = chosen[-1]["value"]
    for name, value in changes.items():
        key = name.replace("_", ":", 1) if name[1:2] == "_" else name
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return {name: value.replace("\r\n", "\n").replace("\n", "\r\n") for name, value in found.items()}


async def send(api: Api, path: str, fields: dict[str, str], **headers: str) -> Answer:
    """Send a form. headers: instead of those of a browser; an empty one is left out."""
    sent = {"Accept": BROWSER, "Content-Type": FORM, "Sec-Fetch-Site": "same-origin", **headers}
    given = {name: value for name, value in sent.items() if value}
    return await api.request("POST", path, body=urlencode(fields), headers=given)


async def edit(api: Api, path: str, **changes: str | None) -> Answer:
    """Open the form of a resource, change some fields, and send it."""
    url = f"/-/pages/edit{path}"
    return await send(api, url, filled(await browse(api, url), **changes))


async def create(api: Api, path: str, **fields: str | None) -> Answer:
    url = f"/-/pages/new{path}"
    return await send(api, url, filled(await browse(api, url), **fields))
