"""Checks the texts of settings beyond their type.

What comes in: a text. What goes out: the text in one canonical form, or ValueError with a message for a person.

It must not know: the settings, what they are for.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_network
from urllib.parse import parse_qsl, urlencode, urlsplit

from server.settings import algorithms
from server.settings.url_parameters import check_parameters

_SCHEME, _NAME, _IPV6 = r"[a-z][a-z0-9+.-]*", r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", r"\[[0-9a-f:.]+\]"
_ORIGIN = re.compile(rf"({_SCHEME})://({_NAME}|{_IPV6})(?::([1-9][0-9]{{0,4}}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}

_PATH = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)+/?")

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_DIRECTIVE = re.compile(rf'({_TOKEN})(?:=({_TOKEN}|"[ !#-\[\]-~]*"))?')
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_OWN_PARAMETERS = frozenset(
    {
        *("client_id", "redirect_uri", "response_type", "response_mode", "scope", "state", "nonce"),
        *("code_challenge", "code_challenge_method", "request", "request_uri"),
    }
)
"""The parameters of an authorization request that the server sets, or that would replace them."""
_SECONDS = frozenset({"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"})


def database_url(url: str) -> str:
    """Refuse a URL that would be misread. An error message of the driver could quote the password.

    Source: PostgreSQL, "34.1.1.2. Connection URIs".
    """
    try:
        parts = urlsplit(url)
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("is not a URL; percent-encode / ? # @ [ ] : in its user name and password") from None
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(parts.scheme + "://"):
        raise ValueError("expected postgresql://user:password@host:port/database")
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if not all(re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?", host) for host in hosts):
        raise ValueError("its host and port can't be read; percent-encode / ? # @ [ ] : in the password")
    # The driver ends the user name and the password at the first @, and urlsplit at the last.
    if parts.fragment or parts.netloc.count("@") > 1 or "@" in parts.path + parts.query:
        raise ValueError("has a # or a second @; percent-encode / ? # @ [ ] : in the password")
    check_parameters(url)
    return url


def public_url(url: str) -> str:
    """Return an absolute URL or a path, to which paths can be appended, without characters that JSON escapes (RFC 3986,
    2)."""
    if _PATH.fullmatch(url):
        return url.rstrip("/")
    expected = "expected an absolute URL such as https://api.example.org or https://example.org/api"
    if not re.fullmatch(r"https?://([A-Za-z0-9._~:/\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+", url):
        raise ValueError(f"{expected}, without query and fragment, other characters percent-encoded")
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host:
        raise ValueError(expected)
    if "@" in parts.netloc:
        raise ValueError(f"{expected}, without user name and password: every link would show them")
    return url.rstrip("/")


def cors_origins(text: str) -> str:
    """Check origins as browsers write them (RFC 6454, 6.2), separated by commas, or `*`.

    >>> cors_origins("https://App.example.org, http://[0::1]:3000")
    'https://app.example.org,http://[::1]:3000'
    """
    if text.strip() == "*":
        return "*"
    return ",".join(dict.fromkeys(_origin(part.strip()) for part in text.split(",")))


def _origin(text: str) -> str:
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        raise ValueError(
            "expected origins such as https://app.example.org or http://localhost:3000, without a path, "
            f"with commas between, or * alone for all of them; not {text!r}"
        )
    scheme, host, port = match.groups()
    if port is not None and (int(port) > 65_535 or port == _DEFAULT_PORTS.get(scheme)):
        raise ValueError(f"{text!r} is no origin as browsers write it: leave out :{port}")
    return f"{scheme}://{_host(host)}" + (f":{port}" if port else "")


def _host(host: str) -> str:
    if not host.startswith("["):
        return host
    try:
        return f"[{IPv6Address(host[1:-1])}]"
    except ValueError:
        raise ValueError(f"{host} is no IPv6 address") from None


def allowed_hosts(text: str) -> str:
    """Check names and addresses as in the header Host, without a port, separated by commas, or `*`.

    >>> allowed_hosts("API.example.org., 10.0.0.5, [0::1], ::2")
    'api.example.org,10.0.0.5,[::1],[::2]'
    """
    if text.strip() == "*":
        return "*"
    return ",".join(dict.fromkeys(_allowed_host(part.strip().lower()) for part in text.split(",")))


def _allowed_host(text: str) -> str:
    name = text.removesuffix(".")
    if re.fullmatch(_NAME, name):
        return name
    try:
        return f"[{IPv6Address(text.removeprefix('[').removesuffix(']'))}]"
    except ValueError:
        raise ValueError(
            "expected names such as api.example.org or 10.0.0.5, without a scheme, port or path, with commas between, "
            f"or * alone for all of them; not {text!r}"
        ) from None


def trusted_proxies(text: str) -> str:
    """Check networks (RFC 4632, RFC 4291) and `unix`, separated by commas.

    >>> trusted_proxies("10.0.0.0/8, ::1, unix")
    '10.0.0.0/8,::1/128,unix'
    """
    return ",".join(dict.fromkeys(_network(part.strip()) for part in text.split(",")))


def _network(text: str) -> str:
    if text == "unix":
        return text
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            "expected addresses or networks such as 10.0.0.5 or 10.0.0.0/8, with commas between, "
            f"and unix for a Unix socket; not {text!r}"
        ) from None
    if "/" in text and ip_network(text.partition("/")[0]).network_address != network.network_address:
        raise ValueError(f"{text} has bits beyond its length: write {network}")
    return str(network)


def cache_control(text: str) -> str:
    """Check directives of the header Cache-Control (RFC 9111, 5.2), or an empty text.

    >>> cache_control("public,max-age=60")
    'public, max-age=60'
    """
    # A comma inside quotes is not supported. The only known directive with one is `private="a,b"`, which caches ignore.
    return ", ".join(_directive(part.strip()) for part in text.split(",")) if text else ""


def _directive(text: str) -> str:
    match = _DIRECTIVE.fullmatch(text)
    if match is None:
        raise ValueError(f"expected directives such as no-cache or public, max-age=60; not {text!r}")
    name, value = match.groups()
    if name.lower() in _SECONDS and (value is None or re.fullmatch("[0-9]+", value) is None):
        raise ValueError(f"{name} wants a number of seconds: {name}=60")
    return text


_URL = re.compile(r"https?://([A-Za-z0-9._~:/\[\]!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(\?[!-~]*)?")
MAX_ROLE_BYTES = 63


def web_url(text: str, example: str = "https://id.example.org/keys") -> str:
    """Check the URL of a document or an endpoint (RFC 3986, 3). example: one for the message."""
    expected = f"expected a URL such as {example}, without user name, password and fragment"
    try:
        has_host = _URL.fullmatch(text) is not None and bool(urlsplit(text).hostname) and urlsplit(text).port != 0
    except ValueError:
        has_host = False
    if not has_host:
        raise ValueError(f"{expected}, not {text!r}")
    return text


def issuer(text: str) -> str:
    """Check an issuer (RFC 8414, 2), which is compared as it is: a slash at its end counts."""
    if "?" in text:
        raise ValueError(f"an issuer has no query: {text!r}")
    return web_url(text, "https://id.example.org/realms/shop")


def introspection_url(text: str) -> str:
    """Check the URL of an endpoint that answers about tokens (RFC 7662, 2)."""
    return web_url(text, "https://id.example.org/introspect")


def web_url_or_path(text: str) -> str:
    """Check a URL, or return a path as it is. The start reads the file."""
    return web_url(text) if "://" in text else text


def auth_algorithms(text: str) -> str:
    """Check names of signature algorithms (RFC 7518, 3.1, RFC 8037), separated by commas.

    >>> auth_algorithms("RS256, ES256")
    'RS256,ES256'
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    known = (*algorithms.PUBLIC, *algorithms.SECRET_BYTES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"expected names out of {', '.join(known)}, with commas between; not {unknown[0]!r}")
    if len({name in algorithms.SECRET_BYTES for name in names}) > 1:
        raise ValueError("HS256, HS384 and HS512 are not accepted together with algorithms of public keys")
    return ",".join(names)


def login_scope(text: str) -> str:
    """Check scopes (RFC 6749, 3.3), separated by blanks. OpenID Connect needs openid.

    >>> login_scope("openid  profile")
    'openid profile'
    """
    scopes = text.split()
    if "openid" not in scopes or not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise ValueError(f"expected scopes with blanks between, openid among them, not {text!r}")
    return " ".join(scopes)


def login_parameters(text: str) -> str:
    """Check a query string, whose parameters the server does not set itself.

    >>> login_parameters("audience=https://api.example.org&prompt=consent")
    'audience=https%3A%2F%2Fapi.example.org&prompt=consent'
    """
    try:
        pairs = parse_qsl(text, strict_parsing=True, errors="strict")
    except ValueError:
        raise ValueError(f"expected a query string such as audience=https://api.example.org, not {text!r}") from None
    for name, _ in pairs:
        if name in _OWN_PARAMETERS:
            raise ValueError(f"the server sets {name} itself")
    return urlencode(pairs)


def role_names(text: str) -> str:
    """Check names of roles of PostgreSQL, separated by commas.

    >>> role_names("authenticated, editor")
    'authenticated,editor'
    """
    return ",".join(dict.fromkeys(role_name(part.strip()) for part in text.split(",")))


def role_name(name: str) -> str:
    """Check the name of a role of PostgreSQL, as the catalog has it. `none` is no name: it stands for no role."""
    if not name or name == "none" or "," in name or len(name.encode()) > MAX_ROLE_BYTES:
        raise ValueError(f"expected the name of a role, of at most {MAX_ROLE_BYTES} bytes, not {name!r}")
    return name


def claim_path(path: str) -> str:
    """Check the path of a claim: names with dots between.

    >>> claim_path("realm_access.roles")
    'realm_access.roles'
    """
    if not all(path.split(".")):
        raise ValueError(f"expected names with dots between, such as realm_access.roles, not {path!r}")
    return path
