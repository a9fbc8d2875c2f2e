"""The parameters of libpq in a database URL."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from server.settings import checks, url_parameters
from server.settings.url_parameters import DriverUrl, driver_url

BASE = "postgresql://me@db/shop"


@pytest.mark.parametrize(
    ("query", "kept", "timeout_seconds", "has_name"),
    [
        ("", "", None, False),
        ("?sslmode=require&channel_binding=prefer", "?sslmode=require", None, False),
        ("?connect_timeout=10", "", 10.0, False),
        ("?connect_timeout=0&options=-c%20search_path%3Dapp", "?options=-c%20search_path%3Dapp", None, False),
        ("?keepalives=1&keepalives_idle=30&keepalives_interval=5&keepalives_count=3", "", None, False),
        ("?gssencmode=disable&target_session_attrs=read-write", "?target_session_attrs=read-write", None, False),
        ("?application_name=shop", "?application_name=shop", None, True),
        ("?sslrootcert=/etc/own.crt&sslmode=verify-ca", "?sslrootcert=/etc/own.crt&sslmode=verify-ca", None, False),
    ],
)
def test_what_the_driver_gets(query: str, kept: str, timeout_seconds: float | None, has_name: bool) -> None:
    checks.database_url(BASE + query)
    assert driver_url(BASE + query) == DriverUrl(BASE + kept, timeout_seconds, has_name)


def test_the_authorities_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "authorities.pem"
    paths = ssl.get_default_verify_paths()._replace(cafile=None, openssl_cafile=str(file))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr(url_parameters, "_USUAL", ())
    with pytest.raises(FileNotFoundError, match="install ca-certificates"):
        driver_url(BASE + "?sslrootcert=system")
    file.touch()
    root = str(file).replace("/", "%2F")
    for query in ("?sslrootcert=system", "?sslmode=verify-full&sslrootcert=system"):
        assert driver_url(checks.database_url(BASE + query)).url == f"{BASE}?sslmode=verify-full&sslrootcert={root}"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("channel_binding=require", "channel_binding=require, which is not supported: leave it out; sslmode=verify"),
        ("gssencmode=require", "gssencmode=require, which is not supported: leave it out"),
        ("require_auth=scram-sha-256", "require_auth=scram-sha-256, which is not supported"),
        ("sslrootcert=system&sslmode=require", "sslrootcert=system, which needs sslmode=verify-full"),
        ("connect_timeout=soon", "a connect_timeout that is no whole number"),
    ],
)
def test_what_is_refused(query: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checks.database_url(f"{BASE}?{query}")
