"""No token is a fault of the server: it is accepted or refused, whatever its parts are."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from querybuild.errors import ApiError
from querybuild.principal import Principal
from server.authentication.files import AuthFiles
from server.authentication.tokens import Tokens
from server.settings import Settings
from tests.issuer import AUDIENCE, claims, encoded

SECRET = b"0123456789abcdef" * 4
ACCEPTING = Tokens(Settings(auth_secret_file=".", auth_audience=AUDIENCE), AuthFiles(secret=SECRET))  # type: ignore[arg-type]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "zip", "enc", "cty"])
CLAIMS = st.sampled_from(["exp", "nbf", "iat", "sub", "aud", "iss", "jti", "roles", "scope", "scp", "typ"])


def answer_of(token: str) -> Principal | str:
    try:
        found = ACCEPTING.principal_of(token)
    except ApiError as error:
        return type(error).__name__
    assert isinstance(found, Principal)
    return found


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_no_text_is_a_fault(token: str) -> None:
    assert isinstance(answer_of(token), str)


@given(st.dictionaries(NAMES, JSON, max_size=4), JSON)
def test_no_header_is_a_fault(header: dict[str, Any], payload: Any) -> None:
    head = f"{encoded({'alg': 'HS256', **header})}.{encoded(payload)}"
    for key in (SECRET, b"another secret of thirty-two bytes"):
        signature = encoded(hmac.new(key, head.encode(), hashlib.sha256).digest())
        assert isinstance(answer_of(f"{head}.{signature}"), str)


@given(st.dictionaries(CLAIMS, JSON, max_size=4))
def test_no_signed_claims_are_a_fault(changed: dict[str, Any]) -> None:
    head = f"{encoded({'alg': 'HS256'})}.{encoded(claims() | changed)}"
    found = answer_of(f"{head}.{encoded(hmac.new(SECRET, head.encode(), hashlib.sha256).digest())}")
    if isinstance(found, Principal):
        assert all(isinstance(one, str) for one in (found.subject, *found.roles, *found.scopes))
        assert found.subject
    else:
        assert found in ("InvalidToken", "ExpiredToken")
