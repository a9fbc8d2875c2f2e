"""Signs people in at the issuer: OpenID Connect's code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636), the
renewal of its tokens, and the way out (RFC 7009; RP-Initiated Logout 1.0).

What comes in: a code or a refresh token. What goes out: a session. It must not know: cookies, requests.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import secrets
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256, sha384, sha512
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
import msgspec

from querybuild.principal import Principal
from server.authentication.discovery import Metadata, fetch_metadata
from server.authentication.fetching import FetchError, Outages, decode_object
from server.authentication.files import AuthFiles
from server.authentication.tokens import Tokens
from server.errors import AuthUnavailable, InvalidToken, SignInRefused
from server.settings import Settings

METADATA_SECONDS = 300.0
"""How long a description of the issuer is used."""

REFUSALS = (400, 401, 403)
"""The statuses with which an issuer refuses a code or a refresh token (RFC 6749, 5.2)."""

CALLBACK = "/-/pages/callback"

_HASHES = {"256": sha256, "384": sha384, "512": sha512, "dsa": sha512}
"""The hash of a signature algorithm, by its last three letters. EdDSA of Ed25519 uses SHA-512."""

log = logging.getLogger("server")


class Attempt(msgspec.Struct, frozen=True):
    """A sign-in that has begun. to: where it leads to, below the base URL. at: its begin, in seconds of Unix time."""

    state: str
    nonce: str
    verifier: str
    to: str
    at: float

    @classmethod
    def new(cls, to: str) -> Attempt:
        """Return an attempt that nobody can guess."""
        return cls(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), to, time.time())


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is signed in. claims, issuer: of the access token. expires_at: when it ends; checked_at: when the
    issuer has given it; both in seconds of Unix time. refresh_token: empty without one. sid: the issuer's name of the
    session, empty without one."""

    claims: dict[str, Any]
    issuer: str
    expires_at: float
    checked_at: float
    refresh_token: str = ""
    sid: str = ""


class SignIn:
    """Asks the issuer, as its client."""

    def __init__(self, settings: Settings, files: AuthFiles, tokens: Tokens) -> None:
        assert settings.auth_issuer is not None
        assert settings.login_client_id is not None
        self._issuer = settings.auth_issuer
        self._client_id = settings.login_client_id
        self._secret = files.login_client_secret
        self._scope = settings.login_scope
        self._further = settings.login_parameters or ""
        # RFC 8707, 2.2: which server a token is for is said in each request for one, too.
        self._resource = {name: value for name, value in parse_qsl(self._further) if name == "resource"}
        self._leeway_seconds = settings.auth_leeway_seconds
        self._redirect_uri = f"{settings.public_url}{CALLBACK}"
        self._home = f"{settings.public_url}/"
        self._tokens = tokens
        self._metadata: Metadata | None = None
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._outages = Outages("signing in works again", "nobody can sign in")

    async def authorization_url(self, attempt: Attempt) -> str:
        """Return where a person signs in. Raises AuthUnavailable."""
        metadata = await self._described()
        assert metadata.authorization_endpoint is not None
        challenge = urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        further = f"&{self._further}" if self._further else ""
        return _with_query(metadata.authorization_endpoint, urlencode(parameters) + further)

    async def check_issuer(self, named: str) -> None:
        """Check that an answer comes from the issuer (RFC 9207). named: its parameter iss, empty without one. Raises
        SignInRefused, AuthUnavailable."""
        is_named = bool((await self._described()).authorization_response_iss_parameter_supported)
        if named != self._issuer and (named or is_named):
            raise SignInRefused("The answer is not from the issuer of this server: its iss does not fit.")

    async def session_of(self, attempt: Attempt, code: str) -> Session:
        """Return the session of somebody who has signed in. Raises SignInRefused, AuthUnavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": attempt.verifier,
        }
        answer = await self._ask(form)
        if isinstance(answer, str):
            raise SignInRefused(f"The issuer refused the code: {answer}.")
        access_token, id_token = _text(answer, "access_token"), _text(answer, "id_token")
        try:
            claims = await self._tokens.id_token_claims(id_token, self._client_id)
            self._check_id_token(claims, attempt, id_token, access_token)
            session = await self._session(answer, access_token)
        except InvalidToken as error:
            log.error("nobody can sign in: a token of the issuer is not accepted: %s", error.detail)
            raise SignInRefused(f"A token of the issuer is not accepted: {error.detail}") from None
        sid = claims.get("sid")
        return msgspec.structs.replace(session, sid=sid if isinstance(sid, str) else "")

    async def renewed(self, session: Session) -> Session | None:
        """Return the session with new tokens, or None if the issuer has ended it. Only the refresh token is new if the
        access token cannot be verified now. Raises AuthUnavailable."""
        self._tokens.check_ready()
        answer = await self._ask({"grant_type": "refresh_token", "refresh_token": session.refresh_token})
        if isinstance(answer, str):
            return None
        try:
            renewed = await self._session(answer, _text(answer, "access_token"))
        except AuthUnavailable:
            # The refresh token is used up, so the next one must not be lost.
            return msgspec.structs.replace(session, refresh_token=_refresh_token(answer) or session.refresh_token)
        except (InvalidToken, SignInRefused) as error:
            log.error("a session has ended: a token of the issuer is not accepted: %s", error.detail)
            return None
        if renewed.claims["sub"] != session.claims["sub"]:
            log.error("a session has ended: the issuer has renewed it for somebody else")
            return None
        # An issuer that does not replace its refresh tokens sends none (RFC 6749, 6).
        token = renewed.refresh_token or session.refresh_token
        return msgspec.structs.replace(renewed, refresh_token=token, sid=session.sid)

    async def end(self, session: Session | None) -> str:
        """Revoke the tokens of a session. Return where the issuer ends its own session, empty if it has no such place
        or does not answer."""
        try:
            metadata = await self._described()
        except AuthUnavailable:
            return ""
        if session is not None and session.refresh_token and metadata.revocation_endpoint is not None:
            form = {"token": session.refresh_token, "token_type_hint": "refresh_token"}
            with suppress(FetchError):
                await self._post(metadata.revocation_endpoint, metadata, form)
        try:
            self._tokens.fetcher.check_url(metadata.end_session_endpoint or "")
        except FetchError:
            return ""
        parameters = {"client_id": self._client_id, "post_logout_redirect_uri": self._home}
        if session is not None and session.sid:
            parameters["logout_hint"] = session.sid
        return _with_query(metadata.end_session_endpoint or "", urlencode(parameters))

    async def _session(self, answer: dict[str, Any], access_token: str) -> Session:
        """Return the session of an answer with tokens. Raises InvalidToken, AuthUnavailable."""
        now, verified_principal = time.time(), self._tokens.principal_of(access_token)
        principal: Principal = (
            await verified_principal if inspect.isawaitable(verified_principal) else verified_principal
        )
        lasts = answer.get("expires_in")
        ends_at = now + lasts if isinstance(lasts, int) else now
        return Session(
            claims=dict(principal.claims),
            issuer=principal.issuer,
            expires_at=float(principal.claims.get("exp", ends_at)) + self._leeway_seconds,
            checked_at=now,
            refresh_token=_refresh_token(answer) or "",
        )

    def _check_id_token(self, claims: dict[str, Any], attempt: Attempt, id_token: str, access_token: str) -> None:
        """Check that an ID token is of this attempt, for this client, and for this access token (OpenID Connect Core
        1.0, 3.1.3.7 and 3.1.3.8). Raises InvalidToken."""
        if not hmac.compare_digest(str(claims["nonce"]).encode(), attempt.nonce.encode()):
            raise InvalidToken("The nonce of the ID token does not fit.")
        if claims.get("azp", self._client_id) != self._client_id:
            raise InvalidToken("The ID token is for another client: its azp does not fit.")
        if "at_hash" in claims:
            algorithm = str(jwt.get_unverified_header(id_token)["alg"])
            digest = _HASHES[algorithm[-3:].lower()](access_token.encode()).digest()
            half = urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
            if claims["at_hash"] != half:
                raise InvalidToken("The at_hash of the ID token does not fit.")

    async def _ask(self, form: dict[str, str]) -> dict[str, Any] | str:
        """Return what the token endpoint answers, or why it refuses. Raises AuthUnavailable."""
        metadata = await self._described()
        assert metadata.token_endpoint is not None
        try:
            answer = decode_object(await self._post(metadata.token_endpoint, metadata, form | self._resource))
        except FetchError as error:
            if error.status not in REFUSALS:
                raise self._unavailable(error) from None
            reason = _reason(error)
            if reason != "invalid_grant":
                # The person can do nothing about it: the client is not set up as the issuer expects.
                log.error("the issuer refuses this client: %s: %s", reason, error)
            return reason
        self._outages.worked()
        return answer

    async def _post(self, url: str, metadata: Metadata, form: dict[str, str]) -> bytes:
        """Send a form as the client. Raises FetchError."""
        methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
        if self._secret is None:
            return await self._tokens.fetcher.post(url, {**form, "client_id": self._client_id}, None)
        if "client_secret_basic" in methods:
            return await self._tokens.fetcher.post(url, form, (self._client_id, self._secret))
        in_form = {"client_id": self._client_id, "client_secret": self._secret.decode("latin-1")}
        return await self._tokens.fetcher.post(url, form | in_form, None)

    async def _described(self) -> Metadata:
        """Return the description of the issuer. Raises AuthUnavailable."""
        async with self._fetching:
            if self._metadata is not None and time.monotonic() - self._fetched_at < METADATA_SECONDS:
                return self._metadata
            try:
                metadata = await fetch_metadata(self._tokens.fetcher, self._issuer)
                for name in ("authorization_endpoint", "token_endpoint"):
                    if not getattr(metadata, name):
                        raise FetchError(f"the description of {self._issuer} has no {name}")
                    self._tokens.fetcher.check_url(getattr(metadata, name))
            except FetchError as error:
                if self._metadata is not None:
                    return self._metadata
                raise self._unavailable(error) from None
            self._metadata, self._fetched_at = metadata, time.monotonic()
            return metadata

    def _unavailable(self, error: FetchError) -> AuthUnavailable:
        self._outages.failed(str(error))
        return AuthUnavailable("The issuer does not answer now; try again.")


def _with_query(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _text(answer: dict[str, Any], name: str) -> str:
    """Return a text of an answer with tokens. Raises SignInRefused."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise SignInRefused(f"The answer of the issuer has no {name}.")
    return value


def _refresh_token(answer: dict[str, Any]) -> str | None:
    """Return the refresh token of an answer, None without one."""
    token = answer.get("refresh_token")
    return token if isinstance(token, str) else None


def _reason(error: FetchError) -> str:
    """Return the code with which an issuer refuses (RFC 6749, 5.2)."""
    with suppress(FetchError):
        reason = decode_object(error.body).get("error")
        if isinstance(reason, str):
            return reason[:100]
    return f"it answered {error.status}"
