"""Keeps people signed in, in a sealed cookie. What comes in: a request of a browser. What goes out: the principal of
its session, which is renewed at the issuer before it is too old.

It must not know: how the issuer is asked, pages.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Mapping
from contextvars import Context
from hashlib import sha256

import msgspec

from querybuild.cache import BoundedCache
from querybuild.principal import ANONYMOUS, Principal
from server.authentication.claims import ClaimsReader
from server.authentication.files import AuthFiles
from server.authentication.signing_in import cookies
from server.authentication.signing_in.sealing import Sealer, session_secrets
from server.authentication.signing_in.sign_in import Attempt, Session, SignIn
from server.authentication.token_cache import BYTES_PER_CHARACTER, ENTRY_BYTES, MAX_BYTES, MAX_ENTRIES, digest_of
from server.authentication.tokens import Tokens
from server.errors import AuthUnavailable, InvalidToken, SignInFailed, SignInRefused
from server.http.request import Request
from server.settings import Settings

ATTEMPT_SECONDS = 600
"""How long a person may take to sign in."""

MAX_ATTEMPTS = 4
"""How many sign-ins of a browser are under way at once, for example in several tabs."""

WAIT_SECONDS, PAUSE_SECONDS = 12.0, 0.05
"""How long a request waits for another worker that renews its session, and how often it looks."""


class Opened(msgspec.Struct, frozen=True):
    """A session that is in use. renew_at: from when on it is renewed; ends_at: when it counts no more. Both are seconds
    of Unix time."""

    session: Session
    principal: Principal
    renew_at: float
    ends_at: float


class Sessions:
    """The sessions of people with a browser. There is one for each worker. cookie: the name of theirs."""

    def __init__(self, settings: Settings, files: AuthFiles, tokens: Tokens) -> None:
        """Raises StartError."""
        assert files.session_secret is not None
        assert files.renewals is not None
        site = f"{settings.auth_issuer} {settings.public_url}"
        secrets = session_secrets(files.session_secret)
        # A session for another audience or client does not count here.
        purpose = f"{site} {settings.login_client_id} {settings.auth_audience}"
        self.cookie = f"__Host-waterspout-{sha256(site.encode()).hexdigest()[:8]}"
        self.sign_in = SignIn(settings, files, tokens)
        self._attempts_cookie = f"{self.cookie}-sign-in"
        self._sealer = Sealer(secrets, f"waterspout session {purpose}")
        self._attempts_sealer = Sealer(secrets, f"waterspout sign-in {purpose}")
        self._reader = ClaimsReader.of(settings)
        self._max_seconds = 60.0 * settings.session_minutes
        self._renewals = files.renewals
        self._renewing: dict[str, asyncio.Task[bytes]] = {}
        self.opened: BoundedCache[Opened] = BoundedCache(MAX_ENTRIES, MAX_BYTES)

    def principal_of(self, request: Request) -> Principal | Awaitable[Principal] | None:
        """Return the principal of the session of a request, an awaitable if it has to be renewed, or None without a
        session that counts."""
        if not cookies.counts(request):
            return None
        sealed = cookies.read(request, self.cookie)
        if sealed is None:
            return None
        opened, now = self._open(sealed), time.time()
        if opened is None or (now >= opened.ends_at and not opened.session.refresh_token):
            request.answer_cookies = cookies.deleted(request, self.cookie)
            return None
        if now >= opened.renew_at and opened.session.refresh_token:
            return self._renewed(request, opened)
        request.is_signed_in = True
        return opened.principal

    def session_of(self, request: Request) -> Session | None:
        """Return the session that a request has, even if it is too old."""
        sealed = cookies.read(request, self.cookie)
        opened = None if sealed is None else self._open(sealed)
        return None if opened is None else opened.session

    async def begin(self, request: Request, to: str) -> str:
        """Begin to sign in, and keep the attempt in a cookie. Return the URL of the issuer. to: where it leads to.
        Raises AuthUnavailable."""
        attempt = Attempt.new(to)
        url = await self.sign_in.authorization_url(attempt)
        attempts = [*self._attempts(request)[1 - MAX_ATTEMPTS :], attempt]
        request.answer_cookies = self._attempts_cookies(request, attempts)
        return url

    async def finish(self, request: Request, answer: Mapping[str, str]) -> str:
        """Finish a sign-in, and keep the session in a cookie. Return where it leads to. answer: the parameters with
        which the issuer has sent the browser back. Raises SignInFailed, SignInRefused, AuthUnavailable."""
        attempts = self._attempts(request)
        state = answer.get("state", "").encode()
        attempt = next(
            (candidate for candidate in attempts if hmac.compare_digest(candidate.state.encode(), state)), None
        )
        if attempt is None:
            if self.session_of(request) is not None:
                # Somebody goes back to this address after the sign-in.
                return "/"
            raise SignInFailed("This sign-in is not known: it took over ten minutes, or has ended. Sign in again.")
        await self.sign_in.check_issuer(answer.get("iss", ""))
        if "error" in answer:
            reason = ": ".join([answer[name][:200] for name in ("error", "error_description") if name in answer])
            raise SignInRefused(f"The issuer did not sign you in: {reason}")
        session = await self.sign_in.session_of(attempt, answer.get("code", ""))
        self._keep(request, self._seal(session))
        others = [other for other in attempts if other is not attempt]
        request.answer_cookies = [*request.answer_cookies, *self._attempts_cookies(request, others)]
        return attempt.to

    async def end(self, request: Request) -> str:
        """End the session of a request, here and at the issuer. Return where the issuer ends its own, or an empty
        text."""
        session = self.session_of(request)
        request.answer_cookies = cookies.deleted(request, self.cookie)
        return await self.sign_in.end(session)

    async def _renewed(self, request: Request, opened: Opened) -> Principal:
        """Return the principal of a renewed session. While the issuer does not answer, the old one counts until it is
        too old. Raises AuthUnavailable."""
        token = opened.session.refresh_token
        task = self._renewing.get(token)
        if task is None:
            # In an empty context, and not cancelled with its request: others may wait for it, and the token is used up.
            task = asyncio.get_running_loop().create_task(self._renew(opened), context=Context())
            self._renewing[token] = task
            task.add_done_callback(lambda done: self._end_renewing(token, done))
        await asyncio.wait((task,))
        try:
            sealed = task.result()
        except AuthUnavailable:
            if time.time() >= opened.ends_at:
                raise
            request.is_signed_in = True
            return opened.principal
        renewed = self._open(sealed.decode()) if sealed else None
        if renewed is None:
            request.answer_cookies = cookies.deleted(request, self.cookie)
            return ANONYMOUS
        self._keep(request, sealed)
        if time.time() >= renewed.ends_at:
            raise AuthUnavailable("The session cannot be renewed now; try again.")
        request.is_signed_in = True
        return renewed.principal

    def _end_renewing(self, token: str, done: asyncio.Task[bytes]) -> None:
        del self._renewing[token]
        # asyncio reports an error that nobody retrieves, and the requests may have gone.
        if not done.cancelled():
            done.exception()

    async def _renew(self, opened: Opened) -> bytes:
        """Return the renewed session, sealed, or nothing if the issuer has ended it. One request of all workers asks
        the issuer. Raises AuthUnavailable."""
        token, until = opened.session.refresh_token, time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            with self._renewals.locked(token) as is_locked:
                if is_locked:
                    known = self._renewals.get(token)
                    if known is None or self._is_due(known, token):
                        session = await self.sign_in.renewed(opened.session)
                        known = b"" if session is None else self._seal(session)
                        self._renewals.put(token, known)
                    return known
            if time.time() < opened.ends_at:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        raise AuthUnavailable("The session is being renewed; try again.")

    def _is_due(self, sealed: bytes, token: str) -> bool:
        """Return whether a session that was renewed with a refresh token has to be renewed with the same one again."""
        opened = self._open(sealed.decode())
        return opened is not None and opened.session.refresh_token == token and time.time() >= opened.renew_at

    def _keep(self, request: Request, sealed: bytes) -> None:
        """Keep a session in the cookie of a browser. Raises SignInRefused."""
        if not cookies.fits(sealed.decode()):
            most = cookies.MAX_PARTS * cookies.PART_BYTES
            raise SignInRefused(f"The tokens of the issuer are too large: a session has at most {most} bytes.")
        request.answer_cookies = cookies.written(request, self.cookie, sealed.decode())

    def _seal(self, session: Session) -> bytes:
        return self._sealer.seal(msgspec.json.encode(session)).encode()

    def _open(self, sealed: str) -> Opened | None:
        digest = digest_of(sealed)
        known = self.opened.get(digest)
        if known is not None:
            return known
        content = self._sealer.open(sealed)
        if content is None:
            return None
        try:
            session = msgspec.json.decode(content, type=Session)
            principal = self._reader.verified(session.claims, session.issuer, session.expires_at).principal
        except (msgspec.MsgspecError, InvalidToken):
            return None
        ends_at = min(session.expires_at, session.checked_at + self._max_seconds)
        opened = Opened(session, principal, (session.checked_at + ends_at) / 2, ends_at)
        self.opened.put(digest, opened, ENTRY_BYTES + BYTES_PER_CHARACTER * len(sealed))
        return opened

    def _attempts(self, request: Request) -> list[Attempt]:
        """Return the sign-ins that a browser has begun, the newest last."""
        sealed = cookies.read(request, self._attempts_cookie)
        content = None if sealed is None else self._attempts_sealer.open(sealed, ATTEMPT_SECONDS)
        try:
            attempts = [] if content is None else msgspec.json.decode(content, type=list[Attempt])
        except msgspec.MsgspecError:
            return []
        return [attempt for attempt in attempts if 0 <= time.time() - attempt.at < ATTEMPT_SECONDS]

    def _attempts_cookies(self, request: Request, attempts: list[Attempt]) -> list[str]:
        """Return the headers Set-Cookie that keep the sign-ins under way, or delete them if there are none."""
        if not attempts:
            return cookies.deleted(request, self._attempts_cookie)
        sealed = self._attempts_sealer.seal(msgspec.json.encode(attempts))
        if len(sealed) > cookies.PART_BYTES:
            # Older attempts make room. A way back that is too long leads to the start page.
            return self._attempts_cookies(request, attempts[1:] or [msgspec.structs.replace(attempts[0], to="/")])
        return cookies.written(request, self._attempts_cookie, sealed, max_seconds=ATTEMPT_SECONDS)
