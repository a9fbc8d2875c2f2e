"""Defines the settings of signing in on the pages, by OpenID Connect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings import checks
from server.settings.access import AccessSettings, is_loopback
from server.settings.groups import About, Text

_SIGN_IN = "Signing in on the pages"
_LOGIN = ("login_client_id",)


class SignInSettings(AccessSettings, frozen=True, kw_only=True):
    """The settings of people who sign in with a browser, after those of access. `Settings` has them all."""

    login_client_id: Annotated[
        Text | None,
        Meta(
            description="The name of this server as a client of auth_issuer. With it people sign in on the pages, by "
            "OpenID Connect. The issuer must know public_url + /-/pages/callback as a redirect URI."
        ),
        About(_SIGN_IN, metavar="NAME"),
    ] = None
    login_client_secret_file: Annotated[
        Path | None,
        Meta(description="A file with the secret of login_client_id, if the issuer gave it one."),
        About(_SIGN_IN, metavar="FILE", needs=_LOGIN),
    ] = None
    login_scope: Annotated[
        Text,
        Meta(
            description="The scopes to ask for, with blanks between. Some issuers only give a refresh token for "
            "offline_access; without one people sign in again when their access token ends."
        ),
        About(_SIGN_IN, metavar="SCOPES", check=checks.login_scope),
    ] = "openid"
    login_parameters: Annotated[
        Text | None,
        Meta(
            description="Further parameters of the authorization request, as a query string such as "
            "audience=https://api.example.org, for issuers that must be told which server the access token is for. A "
            "resource (RFC 8707) is sent with each request for tokens, too."
        ),
        About(_SIGN_IN, metavar="QUERY", check=checks.login_parameters, needs=_LOGIN),
    ] = None
    session_secret_file: Annotated[
        Path | None,
        Meta(
            description="A file with the secret that seals the cookies of sessions, at least 32 bytes, the same for "
            "all servers. A text has a secret in each line, at most four: the first seals, all open."
        ),
        About(_SIGN_IN, metavar="FILE", needs=_LOGIN),
    ] = None
    session_minutes: Annotated[
        int,
        Meta(ge=1, le=1440, description="How long a session may go on after the issuer has ended it."),
        About(_SIGN_IN, metavar="MINUTES"),
    ] = 10

    @property
    def has_sign_in(self) -> bool:
        """Whether people can sign in on the pages."""
        return self.login_client_id is not None


def sign_in_contradictions(settings: SignInSettings) -> Iterator[str]:
    """Yield a line for each pair of these settings that contradict each other, and for what is missing."""
    if not settings.has_sign_in:
        return
    if settings.auth_issuer is None:
        yield "login_client_id needs auth_issuer: people sign in there"
    if settings.session_secret_file is None:
        yield "login_client_id needs session_secret_file: sessions are kept in sealed cookies"
    if settings.auth_secret_file is not None:
        yield "login_client_id needs the public keys of the issuer: leave auth_secret_file out"
    url = settings.public_url or ""
    if not urlsplit(url).netloc:
        yield "login_client_id needs public_url with a host: the issuer sends browsers back to it"
    elif url.startswith("http://") and not is_loopback(url):
        yield "login_client_id needs a public_url with https, unless its host is a loopback address"
