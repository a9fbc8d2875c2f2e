"""Reads the keys that verify signatures: a JSON Web Key Set (RFC 7517), or a secret.

A key is only for the algorithms of its type (RFC 8725, 3.1), so that a public key is never the secret of an HMAC.

It must not know: where keys come from, tokens.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

from server.settings.algorithms import OF_CURVES, OF_RSA, PUBLIC_BY_DEFAULT, SECRET_BYTES

MAX_KEYS = 100
"""The most keys of a set. Issuers have two to ten."""

MAX_SECRETS = 4
"""The most secrets of a file: each may be tried for each token. A rotation has two."""

_LINES = re.compile(rb"[ -~\r\n]+")

RSA_BITS = range(2048, 8193)
"""The sizes of RSA keys. A shorter one is not safe (RFC 7518, 3.3), a longer one takes the loop's time."""

# Only the public members: a set with private keys is used like one without.
_READERS: Mapping[str, tuple[Callable[[dict[str, Any]], Any], tuple[str, ...]]] = {
    "RSA": (RSAAlgorithm.from_jwk, ("kty", "n", "e")),
    "EC": (ECAlgorithm.from_jwk, ("kty", "crv", "x", "y")),
    "OKP": (OKPAlgorithm.from_jwk, ("kty", "crv", "x")),
}

log = logging.getLogger("server")


class KeysError(ValueError):
    """No usable keys. The message is for the log."""


class VerificationKey(msgspec.Struct, frozen=True, eq=False):
    """A key that verifies signatures. kid: its name; None fits any token. algorithms: those that it is used for."""

    kid: str | None
    algorithms: tuple[str, ...]
    value: Any


class Keys(msgspec.Struct, frozen=True, eq=False):
    """The keys of an issuer. source: the bytes that they were read from, to see changes."""

    keys: tuple[VerificationKey, ...]
    source: bytes

    def candidates(self, kid: str | None, algorithm: str) -> list[VerificationKey]:
        """Return the keys that may have signed a token: those of its name, else those without one. kid: the name of the
        key in the token, if it has one."""
        fitting = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return fitting
        return [key for key in fitting if key.kid == kid] or [key for key in fitting if key.kid is None]


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_key_set(source: bytes, accepted: Sequence[str] = PUBLIC_BY_DEFAULT, *, may_be_empty: bool = False) -> Keys:
    """Return the keys of a set. Keys that are not usable are left out. accepted: the algorithms. may_be_empty: whether
    none need be usable. Raises KeysError."""
    try:
        entries = msgspec.json.decode(source, type=_KeySet).keys
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise KeysError("it is not a JSON Web Key Set") from None
    keys = [key for entry in entries[:MAX_KEYS] if (key := _read_key(entry, accepted)) is not None]
    if not keys and not may_be_empty:
        raise KeysError("it has no key for the accepted algorithms")
    return Keys(tuple(keys), source)


def _read_key(jwk: dict[str, Any], accepted: Sequence[str]) -> VerificationKey | None:
    kid, algorithm, kind = jwk.get("kid"), jwk.get("alg"), str(jwk.get("kty"))
    if kind not in _READERS or jwk.get("use", "sig") != "sig" or jwk.get("key_ops", ["verify"]) != ["verify"]:
        return None
    read, members = _READERS[kind]
    try:
        value = read({name: jwk[name] for name in members if name in jwk})
        usable = OF_RSA if kind == "RSA" else (OF_CURVES[jwk["crv"]],)
        is_sized = kind != "RSA" or value.key_size in RSA_BITS
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError) as error:
        log.warning("a key of the issuer cannot be used: %s", type(error).__name__)
        return None
    if not is_sized:
        log.warning("a key of the issuer cannot be used: RSA with %d bits", value.key_size)
        return None
    algorithms = tuple(candidate for candidate in usable if candidate in accepted and algorithm in (None, candidate))
    return VerificationKey(kid if isinstance(kid, str) else None, algorithms, value) if algorithms else None


def read_secrets(source: bytes) -> list[bytes]:
    """Return the secrets in a file. Visible ASCII has a secret in each line, the newest first; other bytes are one
    secret. Raises KeysError."""
    secrets = [source]
    if _LINES.fullmatch(source) is not None:
        secrets = [line for line in source.splitlines() if line]
    if len(secrets) > MAX_SECRETS:
        raise KeysError(f"it has {len(secrets)} lines, and at most {MAX_SECRETS} secrets are tried")
    return secrets


def secret_keys(source: bytes, accepted: Sequence[str] = tuple(SECRET_BYTES)) -> Keys:
    """Return the keys of the secrets in a file. Raises KeysError."""
    _check_secret(source)
    secrets = read_secrets(source)
    where = (lambda number: "it") if len(secrets) == 1 else "secret {} in it".format
    return Keys(
        tuple([_secret_key(secret, accepted, where(number)) for number, secret in enumerate(secrets, 1)]), source
    )


def _secret_key(secret: bytes, accepted: Sequence[str], name: str) -> VerificationKey:
    """Return the key of a secret: it is used for the algorithms that it is long enough for. name: for messages. Raises
    KeysError."""
    algorithms = tuple(name for name, size in SECRET_BYTES.items() if name in accepted and len(secret) >= size)
    if not algorithms:
        needed = min(SECRET_BYTES[name] for name in accepted)
        raise KeysError(f"{name} has {len(secret)} bytes, and at least {needed} are needed")
    _check_secret(secret)
    return VerificationKey(None, algorithms, secret)


def _check_secret(secret: bytes) -> None:
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
    except PyJWTError:
        raise KeysError("it is a public key or a certificate, which everybody knows") from None
