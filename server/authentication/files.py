"""Reads the files of authentication: secrets and a set of public keys.

The start reads them, so that a fault is found before a worker runs, and all workers have the same.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from server.authentication.signing_in.renewals import Renewals
from server.settings import Settings, StartError

MAX_FILE_BYTES = 256 * 1024


class AuthFiles(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The contents of the files, for those that are set. renewals: what workers share to renew sessions."""

    secret: bytes | None = None
    key_set: bytes | None = None
    client_secret: bytes | None = None
    login_client_secret: bytes | None = None
    session_secret: bytes | None = None
    renewals: Renewals | None = None

    def __repr__(self) -> str:
        return "AuthFiles(...)"


def read_files(settings: Settings) -> AuthFiles:
    """Return the contents of the files in the settings. Raises StartError."""
    jwks = settings.auth_jwks
    return AuthFiles(
        secret=read_file("auth_secret_file", settings.auth_secret_file),
        key_set=None if jwks is None or "://" in jwks else read_file("auth_jwks", Path(jwks).expanduser()),
        client_secret=read_file("auth_introspection_secret_file", settings.auth_introspection_secret_file),
        login_client_secret=read_file("login_client_secret_file", settings.login_client_secret_file),
        session_secret=read_file("session_secret_file", settings.session_secret_file),
        renewals=Renewals() if settings.has_sign_in else None,
    )


def read_file(name: str, path: Path | None) -> bytes | None:
    """Return the content of the file of a setting, None without one. Raises StartError."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartError(f"{name}: {path} can't be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise StartError(f"{name}: {path} has more than {MAX_FILE_BYTES} bytes")
    # Editors and echo end a file with a line break.
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not content:
        raise StartError(f"{name}: {path} is empty")
    return content
