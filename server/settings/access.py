"""Defines the settings that say who may use the server: the tokens that it accepts, who may read its metrics, and the
roles of PostgreSQL that requests have."""

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings import checks
from server.settings.algorithms import SECRET_BYTES
from server.settings.front import FrontSettings
from server.settings.groups import ACCESS, AUTHENTICATION, About, Text

_KEYS = ("auth_issuer", "auth_jwks", "auth_secret_file")
"""The settings that have keys to verify tokens with, or lead to them."""


class AccessSettings(FrontSettings, frozen=True, kw_only=True):
    """The settings of authentication, after those of the front. `Settings` has both."""

    auth_issuer: Annotated[
        str | None,
        Meta(
            description="The issuer of the tokens, as in their iss. Its keys are found by OpenID Connect discovery or "
            "RFC 8414, unless auth_jwks or auth_secret_file has them. Without this and those, and without "
            "auth_introspection_url, nobody is asked for a token."
        ),
        About(ACCESS, metavar="URL", check=checks.issuer),
    ] = None
    auth_jwks: Annotated[
        Text | None,
        Meta(description="The issuer's public keys: the URL or the file of a JSON Web Key Set (RFC 7517)."),
        About(ACCESS, metavar="URL|FILE", expected="a URL or a path", check=checks.web_url_or_path),
    ] = None
    auth_secret_file: Annotated[
        Path | None,
        Meta(
            description="A file with the secret of tokens with HS256, HS384 or HS512, at least 32, 48 or 64 bytes. A "
            "text has a secret in each line, at most four; all are accepted, and waterspout token uses the first."
        ),
        About(ACCESS, metavar="FILE"),
    ] = None
    auth_audience: Annotated[
        Text | None,
        Meta(description="The name of this server in the aud of tokens. Tokens for other servers are refused."),
        About(ACCESS, metavar="NAME", needs=(*_KEYS, "auth_introspection_url")),
    ] = None
    auth_algorithms: Annotated[
        Text | None,
        Meta(
            description="The signature algorithms to accept, with commas between. Without it RS256, PS256, ES256, "
            "ES384 and EdDSA, or with auth_secret_file HS256, HS384 and HS512. A key is used only for algorithms of "
            "its type."
        ),
        About(ACCESS, metavar="NAMES", check=checks.auth_algorithms, needs=_KEYS),
    ] = None
    auth_leeway_seconds: Annotated[
        int,
        Meta(ge=0, le=300, description="How far the clocks of the issuer and of this server may differ."),
        AUTHENTICATION,
    ] = 10
    auth_roles_claim: Annotated[
        Text,
        Meta(
            description="The claim with the roles, a list of texts or one text. Dots lead into objects, as in "
            "realm_access.roles, unless the token has a claim with that whole name."
        ),
        About(ACCESS, metavar="CLAIM", check=checks.claim_path),
    ] = "roles"
    auth_anonymous_claim: Annotated[
        Text | None,
        Meta(
            description="The claim that is true in tokens of people who have not signed in, such as is_anonymous of "
            "Supabase. Rules for SIGNED_IN are not for them; those for ANYONE, roles and scopes are."
        ),
        About(ACCESS, metavar="CLAIM", check=checks.claim_path, needs=(*_KEYS, "auth_introspection_url")),
    ] = None
    auth_keys_hours: Annotated[
        float,
        Meta(gt=0, le=720, description="How long keys are used while the issuer cannot be reached."),
        AUTHENTICATION,
    ] = 24.0
    auth_introspection_url: Annotated[
        str | None,
        Meta(
            description="Where tokens that are no JWT are asked for (RFC 7662), and all tokens if auth_issuer, "
            "auth_jwks and auth_secret_file are not set."
        ),
        About(ACCESS, metavar="URL", check=checks.introspection_url),
    ] = None
    auth_introspection_client_id: Annotated[
        Text | None,
        Meta(description="The name of this server as a client of auth_introspection_url."),
        About(ACCESS, metavar="NAME", needs=("auth_introspection_url",)),
    ] = None
    auth_introspection_secret_file: Annotated[
        Path | None,
        Meta(description="A file with the secret of auth_introspection_client_id."),
        About(ACCESS, metavar="FILE", needs=("auth_introspection_url",)),
    ] = None
    auth_allow_http: Annotated[
        bool,
        Meta(
            description="Ask the issuer over http, which anybody on the way can read and change. Without it only "
            "loopback addresses may be http."
        ),
        AUTHENTICATION,
    ] = False
    auth_allow_bound_tokens: Annotated[
        bool,
        Meta(
            description="Accept tokens that are bound to a key (cnf), although this server does not check who has the "
            "key. Only for a server behind a proxy that checks it, by the certificate (RFC 8705) or DPoP (RFC 9449)."
        ),
        AUTHENTICATION,
    ] = False
    auth_admin: Annotated[
        Text | None,
        Meta(
            description="The role or scope that may read /-/metrics on the main port, and the SQL on the pages, if "
            "authentication is configured; without it nobody may."
        ),
        About(ACCESS, metavar="NAME"),
    ] = None
    row_security: Annotated[
        Literal["off", "postgresql"],
        Meta(
            description="With postgresql, all statements of a request run with a role of PostgreSQL and with claims "
            "in request.jwt.claims, for databases that have policies of row-level security."
        ),
        AUTHENTICATION,
    ] = "off"
    auth_role_claim: Annotated[
        Text,
        Meta(
            description="The claim with the role for row_security, one text. Dots lead into objects, as for "
            "auth_roles_claim."
        ),
        About(ACCESS, metavar="CLAIM", check=checks.claim_path),
    ] = "role"
    auth_roles_allowed: Annotated[
        Text | None,
        Meta(
            description="The roles that this claim may name besides auth_anonymous_role, with commas between. Any "
            "other is a 403."
        ),
        About(ACCESS, metavar="ROLES", check=checks.role_names, needs=("row_security",)),
    ] = None
    auth_anonymous_role: Annotated[
        Text | None,
        Meta(
            description="The role for row_security of requests without credentials, and of tokens without the claim. "
            "Without it they are a 401 and a 403."
        ),
        About(ACCESS, metavar="ROLE", check=checks.role_name, needs=("row_security",)),
    ] = None

    @property
    def has_row_security(self) -> bool:
        """Whether statements run with roles of PostgreSQL."""
        return self.row_security == "postgresql"

    development_principals: Annotated[
        Path | None,
        Meta(
            description="A JSON file of claims by names: a person with a browser on this machine chooses who to be, to "
            "try rules. Only with a host that is a loopback address, and without an issuer."
        ),
        About(ACCESS, metavar="FILE"),
    ] = None

    @property
    def takes_jwts(self) -> bool:
        """Whether there are keys to verify tokens with."""
        return any((self.auth_issuer, self.auth_jwks, self.auth_secret_file))

    @property
    def takes_tokens(self) -> bool:
        """Whether clients may send tokens."""
        return self.takes_jwts or self.auth_introspection_url is not None


def access_contradictions(settings: AccessSettings) -> Iterator[str]:
    """Yield a line for each pair of these settings that contradict each other, and for what is missing."""
    if settings.auth_jwks and settings.auth_secret_file:
        yield "auth_jwks and auth_secret_file exclude each other: tokens have either public keys or a secret"
    if settings.takes_jwts and not settings.auth_audience:
        yield "auth_audience is missing: without it, tokens for other servers of the issuer would be accepted"
    has_client = [
        settings.auth_introspection_client_id is not None,
        settings.auth_introspection_secret_file is not None,
    ]
    if settings.auth_introspection_url and not all(has_client):
        yield "auth_introspection_url needs auth_introspection_client_id and auth_introspection_secret_file"
    algorithms = settings.auth_algorithms or ""
    if algorithms and (algorithms.partition(",")[0] in SECRET_BYTES) != (settings.auth_secret_file is not None):
        yield "auth_algorithms: HS256, HS384 and HS512 are for auth_secret_file, and only they"
    for name in ("auth_issuer", "auth_jwks", "auth_introspection_url"):
        url = getattr(settings, name) or ""
        if not settings.auth_allow_http and url.startswith("http://") and not is_loopback(url):
            yield f"{name} must be https, unless its host is a loopback address or auth_allow_http is set"
    if settings.development_principals is not None:
        if settings.takes_tokens:
            yield "development_principals is for trying rules without tokens: leave it out where auth_... is set"
        if not is_loopback(f"//{settings.host}"):
            yield "development_principals needs a host that is a loopback address: anybody may choose who to be"
    if settings.has_row_security and not (settings.auth_roles_allowed or settings.auth_anonymous_role):
        yield "row_security needs auth_roles_allowed, auth_anonymous_role or both"


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
