"""Lets a person on the machine of a server choose who to be, to try rules without an issuer. What comes in: a file of
claims by names. What goes out: the principal that a cookie names.

The settings only allow it on loopback addresses, and without an issuer.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import msgspec

from querybuild.principal import ANONYMOUS, Principal
from server.authentication.claims import ClaimsReader
from server.authentication.files import read_file
from server.errors import InvalidToken
from server.http.request import Request
from server.settings import Settings, StartError

COOKIE = "waterspout-principal"
SETTING = "development_principals"

_COOKIE = re.compile(rf"(?:^|;\s*){COOKIE}=([^;\s]*)")


class ChosenPrincipals:
    """The principals of the file, by their names. Raises StartError."""

    def __init__(self, settings: Settings) -> None:
        text = read_file(SETTING, settings.development_principals)
        try:
            found = msgspec.json.decode(text or b"{}", type=dict[str, dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise StartError(f"{SETTING}: expected an object of claims by names, as JSON: {error}") from None
        reader = ClaimsReader.of(settings)
        self.by_name: dict[str, Principal] = {}
        for name, claims in found.items():
            try:
                principal = reader.verified({"sub": name, **claims}, str(claims.get("iss", "")), 0.0).principal
            except InvalidToken as error:
                raise StartError(f"{SETTING}: {name}: {error.detail}") from None
            self.by_name[name] = principal

    def principal_of(self, request: Request) -> Principal:
        """Return whom the cookie names. It counts only for requests of the server's own pages, and for addresses that a
        person opens."""
        headers = request.headers
        found = _COOKIE.search(headers.get("Cookie", ""))
        if found is None or not request.server_connection.is_loopback:
            return ANONYMOUS
        is_opened = request.method in ("GET", "HEAD") and headers.get("Sec-Fetch-Mode") == "navigate"
        if headers.get("Sec-Fetch-Site") != "same-origin" and not is_opened:
            return ANONYMOUS
        return self.by_name.get(unquote(found[1]), ANONYMOUS)
