"""Seals texts that browsers keep, so that they can neither read nor change them. The cryptography is Fernet's
(AES-128-CBC and HMAC-SHA256), with a key of its own for each purpose (HKDF, RFC 5869).

It must not know: what is sealed, HTTP.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from server.authentication.keys import KeysError, read_secrets
from server.settings import StartError

SECRET_BYTES = 32
"""The least size of a secret."""


class Sealer:
    """Seals texts for one purpose. Texts of another purpose, or of other secrets, are not opened."""

    def __init__(self, secrets: list[bytes], purpose: str) -> None:
        """secrets: the first seals, all open."""
        self._fernet = MultiFernet([Fernet(_key(secret, purpose)) for secret in secrets])

    def seal(self, content: bytes) -> str:
        """Return the sealed content, in letters that cookies may have."""
        return self._fernet.encrypt(content).decode()

    def open(self, sealed: str, max_seconds: int | None = None) -> bytes | None:
        """Return the content, or None if this did not seal it. max_seconds: how old it may be."""
        try:
            return self._fernet.decrypt(sealed.encode(), max_seconds)
        except InvalidToken:
            return None


def session_secrets(source: bytes) -> list[bytes]:
    """Return the secrets of the file for sessions. Raises StartError."""
    try:
        secrets = read_secrets(source)
    except KeysError as error:
        raise StartError(f"session_secret_file: {error}") from None
    for secret in secrets:
        if len(secret) < SECRET_BYTES:
            raise StartError(f"session_secret_file: a secret in it has {len(secret)} bytes, and 32 are needed")
    return secrets


def _key(secret: bytes, purpose: str) -> bytes:
    return urlsafe_b64encode(HKDF(SHA256(), 32, None, purpose.encode()).derive(secret))
