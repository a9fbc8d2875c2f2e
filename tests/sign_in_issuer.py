"""An issuer where people sign in, for tests: OpenID Connect's code flow with PKCE, refresh tokens that may be used
once, and the way out."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.issuer import AUDIENCE, DISCOVERY, Issuer, private_key, signed

AUTHORIZE, TOKEN, REVOKE, LOGOUT = "/authorize", "/token", "/revoke", "/logout"
LOGIN_CLIENT = "shop pages"


class SignInIssuer(Issuer):
    """An issuer that knows people. grants: refresh tokens with the subject; one that was used ends all of its subject.
    forms: what the token endpoint was sent. seconds: how long an access token counts. claims, id_claims: further ones
    of access tokens and ID tokens. gives_refresh, rotates: whether there are refresh tokens, and new ones each time.
    padding: makes them longer. is_opaque: whether access tokens are known by introspection only."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[str, dict[str, str]] = {}
        self.grants: dict[str, str] = {}
        self.used: set[str] = set()
        self.forms: list[dict[str, str]] = []
        self.revoked: list[str] = []
        self.seconds = 3600
        self.claims: dict[str, Any] = {}
        self.id_claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.gives_refresh = self.rotates = True
        self.padding = ""
        self.is_opaque = False
        self.answers |= {TOKEN: self._token, REVOKE: self._revoke}

    def document(self, path: str) -> Any:
        found = super().document(path)
        if path != DISCOVERY:
            return found
        more = {
            "authorization_endpoint": self.url + AUTHORIZE,
            "token_endpoint": self.url + TOKEN,
            "revocation_endpoint": self.url + REVOKE,
            "end_session_endpoint": self.url + LOGOUT,
        }
        described = json.loads(found) | more | self.metadata
        return json.dumps({name: value for name, value in described.items() if value is not None}).encode()

    def approve(self, url: str, subject: str = "ann") -> str:
        """Sign somebody in, as the page of the issuer does. url: where the server led to. Returns the query of the way
        back."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked | {"subject": subject}
        return f"code={code}&state={asked['state']}"

    def end(self, subject: str) -> None:
        """End the session of somebody."""
        self.grants = {token: one for token, one in self.grants.items() if one != subject}

    def _token(self, handler: Any) -> Any:
        form = dict(parse_qsl(handler.request.body.decode(), keep_blank_values=True))
        self.forms.append(form | {"Authorization": handler.request.headers.get("Authorization", "")})
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
            if asked is None or challenge.rstrip(b"=").decode() != asked["code_challenge"]:
                return self._refuse(handler)
            assert form["redirect_uri"] == asked["redirect_uri"]
            return self._tokens(asked["subject"], asked["nonce"])
        token = form["refresh_token"]
        if token in self.used:
            self.end(token.partition("-")[0])
        subject = self.grants.get(token)
        if subject is None:
            return self._refuse(handler)
        if self.rotates:
            self.used.add(token)
            del self.grants[token]
        return self._tokens(subject, None)

    def _tokens(self, subject: str, nonce: str | None) -> bytes:
        access_token = self.token(**({"sub": subject, "exp": _now() + self.seconds} | self.claims))
        if self.is_opaque:
            known = {"sub": subject, "aud": AUDIENCE, "exp": _now() + self.seconds} | self.claims
            access_token = secrets.token_urlsafe(24)
            self.active[access_token] = known
        answer: dict[str, Any] = {"access_token": access_token, "token_type": "Bearer", "expires_in": self.seconds}
        if self.gives_refresh and (self.rotates or nonce is not None):
            answer["refresh_token"] = f"{subject}-{secrets.token_urlsafe(8)}{self.padding}"
            self.grants[answer["refresh_token"]] = subject
        if nonce is not None:
            half = hashlib.sha256(access_token.encode()).digest()[:16]
            of_id = {
                **{
                    "iss": self.url,
                    "aud": LOGIN_CLIENT,
                    "sub": subject,
                    "nonce": nonce,
                    "sid": f"session of {subject}",
                },
                **{"iat": _now(), "exp": _now() + 60},
                "at_hash": base64.urlsafe_b64encode(half).rstrip(b"=").decode(),
            }
            given = {name: value for name, value in (of_id | self.id_claims).items() if value is not None}
            answer["id_token"] = signed(given, private_key("RS256"), "RS256", {"kid": "one"})
        return json.dumps(answer).encode()

    def _refuse(self, handler: Any) -> bytes:
        handler.set_status(400)
        return b'{"error": "invalid_grant"}'

    def _revoke(self, handler: Any) -> bytes:
        form = dict(parse_qsl(handler.request.body.decode()))
        self.revoked.append(form["token"])
        self.end(form["token"].partition("-")[0])
        return b""


def _now() -> int:
    return int(time.time())
