"""Lets a person on the machine of a server choose who to be, to try rules without an issuer. What comes in: a file of
claims by names. What goes out: the principal that a cookie names.

The settings only allow it on loopback addresses, and without an issuer.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from querybuild.principal import ANONYMOUS, Principal
from server.authentication.claims import ClaimsReader
from server.authentication.files import read_file
from server.authentication.signing_in import cookies
from server.errors import InvalidToken
from server.http.request import Request
from server.settings import Settings, StartError

COOKIE = "waterspout-principal"
SETTING = "development_principals"


class ChosenPrincipals:
    """The principals of the file, by their names. Raises StartError."""

    def __init__(self, settings: Settings) -> None:
        text = read_file(SETTING, settings.development_principals)
        try:
            claims_by_name = msgspec.json.decode(text or b"{}", type=dict[str, dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise StartError(f"{SETTING}: expected an object of claims by names, as JSON: {error}") from None
        reader = ClaimsReader.of(settings)
        self.by_name: dict[str, Principal] = {}
        for name, claims in claims_by_name.items():
            try:
                principal = reader.verified({"sub": name, **claims}, str(claims.get("iss", "")), 0.0).principal
            except InvalidToken as error:
                raise StartError(f"{SETTING}: {name}: {error.detail}") from None
            self.by_name[name] = principal

    def principal_of(self, request: Request) -> Principal:
        """Return whom the cookie names."""
        if not request.server_connection.is_loopback or not cookies.counts(request):
            return ANONYMOUS
        return self.by_name.get(unquote(cookies.read(request, COOKIE) or ""), ANONYMOUS)

    def name_of(self, principal: Principal) -> str:
        """Return the name of a principal, empty for any other."""
        return next((name for name, known in self.by_name.items() if known is principal), "")
