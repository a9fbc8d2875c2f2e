"""Verification of JSON Web Tokens: which claims count, and the attacks of RFC 8725."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
import warnings
from typing import Any

import pytest
from jwt.algorithms import RSAAlgorithm

from querybuild.declarations.access import ANYONE, SIGNED_IN
from querybuild.errors import ApiError
from querybuild.principal import Principal
from server.authentication import jwts
from server.authentication.bearer import MAX_TOKEN_BYTES, bearer_token, challenge, check_token
from server.authentication.claims import ClaimsReader, Verified
from server.authentication.files import AuthFiles
from server.authentication.jwts import JwtVerifier, UnknownKey, accepted_algorithms
from server.authentication.keys import Keys, KeysError, read_key_set, secret_keys
from server.authentication.tokens import Tokens
from server.errors import ExpiredToken, InvalidToken
from server.settings import Settings, StartError
from tests.issuer import AUDIENCE, claims, encoded, private_key, public_jwk, public_pem, signed

ISSUER = "https://id.example.org/"
BOUND = "The token is bound to a key (cnf), and this server cannot check who has the key."
SECRET = b"0123456789abcdef" * 4
RSA, OTHER_RSA, EC = private_key("RS256"), private_key("RS256", 1), private_key("ES256")
SET = read_key_set(json.dumps({"keys": [public_jwk(RSA, kid="one"), public_jwk(EC, kid="two")]}).encode())


def verifier(**changed: Any) -> JwtVerifier:
    return JwtVerifier(Settings(**({"auth_issuer": ISSUER, "auth_audience": AUDIENCE} | changed)))


def verified(token: str, keys: Keys = SET, **changed: Any) -> Verified:
    return verifier(**changed).verify(token, keys)


def token_of(payload: Any = None, header: Any = None, key: Any = RSA, algorithm: str = "RS256", **changed: Any) -> str:
    """Return a token that is valid, but for what is changed. payload: bytes to sign instead of claims."""
    body = claims(**({"iss": ISSUER} | changed)) if payload is None else payload
    return signed(body, key, algorithm, {"kid": "one"} if header is None else header)


def refusal(token: str, keys: Keys = SET, **changed: Any) -> str:
    with pytest.raises(InvalidToken) as caught:
        verified(token, keys, **changed)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return caught.value.detail


def test_a_valid_token() -> None:
    expiry = int(time.time()) + 60
    found = verified(token_of(exp=expiry, roles=["editor"], scope="a b", scp=["c"], nested={"a": [1]}))
    assert isinstance(found.principal, Principal)
    assert found.expires_at == expiry + 10
    assert (found.principal.subject, found.principal.issuer) == ("ann", ISSUER)
    assert (found.principal.roles, found.principal.scopes) == ({"editor"}, {"a", "b", "c"})
    assert found.principal.claims["nested"] == {"a": [1]}


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
def test_the_algorithms_that_are_accepted_by_default(algorithm: str) -> None:
    key = private_key(algorithm)
    keys = read_key_set(json.dumps({"keys": [public_jwk(key, kid="one")]}).encode())
    assert verified(token_of(key=key, algorithm=algorithm), keys).principal.subject == "ann"


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS512", "ES512"])
def test_other_algorithms_must_be_set(algorithm: str) -> None:
    key = private_key(algorithm)
    source = json.dumps({"keys": [public_jwk(key, kid="one")]}).encode()
    token = token_of(key=key, algorithm=algorithm)
    assert "algorithm" in refusal(token)
    assert verified(token, read_key_set(source, (algorithm,)), auth_algorithms=algorithm).principal.subject == "ann"


# claims


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"exp": None}, "The token has no exp."),
        ({"exp": "9999999999"}, "The exp of the token is not a number of seconds."),
        ({"exp": True}, "The token has expired."),
        ({"exp": [9999999999]}, jwts.MALFORMED),
        ({"exp": {}}, jwts.MALFORMED),
        ({"exp": float("nan")}, jwts.MALFORMED),
        ({"exp": float("inf")}, jwts.MALFORMED),
        ({"exp": float("-inf")}, jwts.MALFORMED),
        ({"exp": 10**30}, "The exp of the token is not a number of seconds."),
        ({"exp": 1e30}, "The exp of the token is not a number of seconds."),
        ({"exp": -1}, "The token has expired."),
        ({"nbf": "soon"}, jwts.MALFORMED),
        ({"nbf": float("inf")}, jwts.MALFORMED),
        ({"iat": float("nan")}, jwts.MALFORMED),
        ({"iss": None}, "The token has no iss."),
        ({"iss": ISSUER.rstrip("/")}, "The token is from another issuer: its iss does not fit."),
        ({"iss": [ISSUER]}, "The token is from another issuer: its iss does not fit."),
        ({"iss": ISSUER + "x"}, "The token is from another issuer: its iss does not fit."),
        ({"aud": []}, "The token has no aud."),
        ({"aud": [AUDIENCE, 1]}, "The token is for another server: its aud does not fit."),
        ({"aud": {AUDIENCE: 1}}, "The token is for another server: its aud does not fit."),
        ({"aud": AUDIENCE + "/"}, "The token is for another server: its aud does not fit."),
        ({"aud": AUDIENCE.upper()}, "The token is for another server: its aud does not fit."),
        ({"sub": None}, "The token has no sub."),
        ({"sub": 7}, jwts.MALFORMED),
        ({"sub": ["ann"]}, jwts.MALFORMED),
        ({"sub": ""}, "The token has no sub, or not a text."),
        ({"sub": "a\0b"}, "The sub of the token has the character U+0000, which PostgreSQL cannot store."),
        ({"jti": 1}, jwts.MALFORMED),
        ({"typ": "Refresh"}, "The token is not an access token."),
        ({"typ": "ID"}, "The token is not an access token."),
        ({"token_use": "id"}, "The token is not an access token."),
        ({"at_hash": "x"}, "The token is not an access token."),
        *(({"cnf": {member: "x"}}, BOUND) for member in ("jkt", "x5t#S256", "jwk", "kid", "new")),
        ({"cnf": {}}, BOUND),
        ({"cnf": "x"}, BOUND),
    ],
)  # fmt: skip
def test_claims_that_are_refused(changed: dict[str, Any], detail: str, caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps({key: value for key, value in (claims(iss=ISSUER) | changed).items() if value is not None})
    token = token_of(body.encode())
    assert refusal(token) == detail
    assert "unexpected" not in caplog.text


def test_bound_tokens_are_accepted_if_a_proxy_checks_the_proof() -> None:
    found = verified(token_of(cnf={"jkt": "x"}), auth_allow_bound_tokens=True)
    assert found.principal.claims["cnf"] == {"jkt": "x"}
    assert verified(token_of(json.dumps(claims(iss=ISSUER) | {"cnf": None}).encode()))


@pytest.mark.parametrize("seconds", [-9, 9])
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_clocks_may_differ(name: str, seconds: int) -> None:
    assert verified(token_of(**{name: int(time.time()) + seconds})).principal.subject == "ann"


@pytest.mark.parametrize(("name", "seconds"), [("exp", -11), ("nbf", 13), ("iat", 13)])
def test_clocks_may_differ_by_the_leeway(name: str, seconds: int) -> None:
    token = token_of(**{name: int(time.time()) + seconds})
    assert refusal(token)
    assert verified(token, auth_leeway_seconds=20).principal.subject == "ann"


def test_an_expired_token_is_told_apart() -> None:
    with pytest.raises(ExpiredToken):
        verified(token_of(exp=1))
    # A token with another fault is not told that it has expired: its signature comes first.
    assert "signature" in refusal(token_of(exp=1, key=OTHER_RSA))


@pytest.mark.parametrize(
    ("roles", "found"),
    [
        ("editor", {"editor"}),
        ("", set()),
        ("editor admin", {"editor admin"}),
        (["editor", "editor"], {"editor"}),
        (["editor", 1, None, True, 1.5, {"a": 1}, ["admin"], [["admin"]]], {"editor"}),
        ([["admin"]], set()),
        ({"admin": True}, set()),
        (1, set()),
        (None, set()),
        (["\u0430dmin", "admin ", " admin", "ADMIN", "admin\u200b", "\uff41dmin", "admin\0"], None),
    ],
)
def test_roles_are_compared_letter_by_letter(roles: Any, found: set[str] | None) -> None:
    body = json.dumps(claims(iss=ISSUER) | {"roles": roles}).encode()
    principal = verified(token_of(body)).principal
    assert "admin" not in principal.roles
    assert found is None or principal.roles == found


def test_roles_in_objects_and_under_names_with_dots() -> None:
    token = token_of(**{"realm_access": {"roles": ["a"]}, "https://example.org/roles": ["b"], "x": {"y": {"z": "c"}}})
    found = [
        verified(token, auth_roles_claim=name).principal.roles
        for name in ("realm_access.roles", "https://example.org/roles", "x.y.z", "x.y", "x.z", "realm_access.roles.0")
    ]
    assert found == [{"a"}, {"b"}, {"c"}, set(), set(), set()]


def test_duplicate_claims_are_read_alike_everywhere() -> None:
    """The last one counts, for the checks and for the principal (RFC 7519, 4)."""
    usual = json.dumps(claims(iss=ISSUER))[1:-1]
    first = f'{{"exp": 99999999999, "sub": "root", {usual}, "roles": ["admin"], "roles": ["reader"]}}'
    principal = verified(token_of(first.encode())).principal
    assert (principal.subject, principal.roles) == ("ann", {"reader"})
    with pytest.raises(ExpiredToken):
        verified(token_of(f'{{{usual}, "exp": 1}}'.encode()))


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b'"text"', b"1", b"{", b"\xff", b'{"sub": "\xff"}', b"[" * 6000, b'{"a":' * 2000,
        json.dumps(claims(iss=ISSUER) | {"x": "\ud800"}).encode(),
        json.dumps(claims(iss=ISSUER) | {"sub": "\udfff"}).encode(),
    ],
)  # fmt: skip
def test_signed_payloads_that_are_no_claims(payload: bytes) -> None:
    assert refusal(token_of(payload))


def test_claims_that_no_column_can_have_become_null() -> None:
    body = json.dumps(claims(iss=ISSUER) | {"x": float("nan"), "y": [float("inf")]}).encode()
    found = verified(token_of(body)).principal.claims
    assert (found["x"], found["y"]) == (None, [None])


# headers


def forged(header: dict[str, Any], key: bytes = b"", digest: str = "sha256", **changed: Any) -> str:
    """Return a token with any header, and an HMAC of it."""
    head = f"{encoded(header)}.{encoded(claims(**({'iss': ISSUER} | changed)))}"
    return f"{head}.{encoded(hmac.new(key, head.encode(), digest).digest() if key else b'')}"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 0, [], {}, ["RS256"], "RS256 ", "rs256"])
@pytest.mark.parametrize("keys", [SET, secret_keys(SECRET)], ids=["public keys", "secret"])
def test_alg_none(name: Any, keys: Keys) -> None:
    assert "algorithm" in refusal(forged({"alg": name, "kid": "one"}), keys)
    assert "algorithm" in refusal(forged({"alg": name}), keys, auth_secret_file=".")


def test_a_token_without_alg_or_signature() -> None:
    assert refusal(forged({"kid": "one"}))
    token = token_of()
    assert refusal(token.rpartition(".")[0] + ".")
    assert refusal(token.rpartition(".")[0])


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_secret(algorithm: str) -> None:
    """The best-known attack: the public key as the secret of an HMAC (RFC 8725, 2.1)."""
    digest = f"sha{algorithm[2:]}"
    jwk = json.dumps(public_jwk(RSA)).encode()
    modulus = RSA.public_key().public_numbers().n
    for key in (public_pem(RSA), public_pem(RSA).strip(), jwk, modulus.to_bytes(256, "big"), SET.source):
        assert "algorithm" in refusal(forged({"alg": algorithm, "kid": "one"}, key, digest))


@pytest.mark.parametrize("secret", [public_pem(RSA), public_pem(EC)])
def test_a_public_key_cannot_be_set_as_the_secret(secret: bytes) -> None:
    with pytest.raises(KeysError, match="public key"):
        secret_keys(secret)


def test_a_set_has_no_secrets() -> None:
    secret = {"kty": "oct", "kid": "one", "k": base64.urlsafe_b64encode(SECRET).decode(), "alg": "HS256"}
    with pytest.raises(KeysError):
        read_key_set(json.dumps({"keys": [secret]}).encode(), ("HS256",))
    keys = read_key_set(json.dumps({"keys": [secret, public_jwk(RSA, kid="two")]}).encode(), ("HS256", "RS256"))
    assert [key.algorithms for key in keys.keys] == [("RS256",)]


def test_an_algorithm_of_another_key() -> None:
    """The name of the RSA key with a signature of the EC key, and the other way round."""
    with pytest.raises(UnknownKey):
        verified(token_of(key=EC, algorithm="ES256"))
    with pytest.raises(UnknownKey):
        verified(token_of(header={"kid": "two"}))


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../dev/null", "/dev/null", "one' OR '1'='1", "1; DROP TABLE users", "|sleep 5", "x" * 8000, "one\0",
        "\n", "%s%n", "http://127.0.0.1/keys", "\u0131ne", "",
    ],
)  # fmt: skip
def test_a_kid_is_only_compared(kid: str) -> None:
    with pytest.raises(UnknownKey):
        verified(token_of(header={"kid": kid}, key=OTHER_RSA))


@pytest.mark.parametrize("kid", [1, None, ["one"], {"one": 1}, True])
def test_a_kid_that_is_no_text(kid: Any) -> None:
    assert refusal(forged({"alg": "RS256", "kid": kid}, b"x"))


@pytest.mark.parametrize("name", ["jku", "x5u", "x5c", "jwk", "x5t", "x5t#S256"])
def test_keys_in_the_header_are_never_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker signs with a key of their own, and says where it is."""
    monkeypatch.setattr("socket.socket.connect", None)
    value: Any = public_jwk(OTHER_RSA) if name == "jwk" else "https://evil.example/keys"
    value = [base64.b64encode(public_pem(OTHER_RSA)).decode()] if name == "x5c" else value
    assert "signature" in refusal(token_of(header={"kid": "one", name: value}, key=OTHER_RSA))
    # They do no harm either.
    assert verified(token_of(header={"kid": "one", name: value})).principal.subject == "ann"


@pytest.mark.parametrize(
    "crit", [["exp"], ["b64"], [], "b64", None, {}, [1], ["b64", "b64"], ["alg"], ["http://example.org/x"]]
)
def test_critical_headers_are_refused(crit: Any) -> None:
    for header in ({"kid": "one", "crit": crit}, {"kid": "one", "crit": crit, "b64": True, "http://example.org/x": 1}):
        head = f"{encoded({'alg': 'RS256', **header})}.{encoded(claims(iss=ISSUER))}"
        signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(head.encode(), RSA)
        assert refusal(f"{head}.{encoded(signature)}")


def test_an_unencoded_payload_is_refused() -> None:
    """RFC 7797: the payload would not be what was signed."""
    assert refusal(forged({"alg": "RS256", "kid": "one", "b64": False}, b"x"))
    assert refusal(f"{encoded({'alg': 'RS256', 'kid': 'one', 'b64': False, 'crit': ['b64']})}..{encoded(b'x')}")


@pytest.mark.parametrize(
    ("kind", "is_accepted"),
    [
        ("JWT", True), ("jwt", True), ("at+jwt", True), ("AT+JWT", True), ("application/at+jwt", True),
        ("dpop+jwt", False), ("logout+jwt", False), ("secevent+jwt", False), ("JOSE", False),
        (1, False), (["JWT"], False), ("application/jwt", False),
    ],
)  # fmt: skip
def test_types(kind: Any, is_accepted: bool) -> None:
    token = token_of(header={"kid": "one", "typ": kind})
    assert verified(token).principal if is_accepted else "typ" in refusal(token)


def test_an_encrypted_token_is_refused() -> None:
    header = {"alg": "RSA-OAEP", "enc": "A256GCM", "zip": "DEF", "kid": "one"}
    assert refusal(f"{encoded(header)}.AAAA.AAAA.AAAA.AAAA")
    assert refusal(f"{encoded({**header, 'alg': 'RS256'})}.AAAA.AAAA.AAAA.AAAA")


def test_a_signature_of_zeros() -> None:
    """CVE-2022-21449: zeros as an ECDSA signature."""
    head = f"{encoded({'alg': 'ES256', 'kid': 'two'})}.{encoded(claims(iss=ISSUER))}"
    for signature in (bytes(64), b"\xff" * 64, b"", bytes(63), bytes(1000)):
        assert refusal(f"{head}.{encoded(signature)}")


def test_a_changed_letter_anywhere_is_refused() -> None:
    token = token_of()
    for place in range(0, len(token), 7):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises((InvalidToken, UnknownKey)):
            verified(changed)


def test_several_keys_without_names() -> None:
    unnamed = [public_jwk(private_key("RS256", number)) for number in range(3)]
    keys = read_key_set(json.dumps({"keys": unnamed}).encode())
    for number in range(3):
        assert verified(token_of(header={}, key=private_key("RS256", number)), keys).principal.subject == "ann"
        assert verified(token_of(key=private_key("RS256", number)), keys).principal.subject == "ann"
    assert "signature" in refusal(token_of(header={}, key=private_key("RS256", 4)), keys)


# keys


@pytest.mark.parametrize(("bits", "is_used"), [(1024, False), (2048, True), (4096, True)])
def test_sizes_of_rsa_keys(bits: int, is_used: bool, caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = json.dumps({"keys": [public_jwk(private_key("RS256", bits, bits=bits), kid="x")]}).encode()
    with caplog.at_level(logging.WARNING):
        if is_used:
            assert read_key_set(source)
        else:
            with pytest.raises(KeysError):
                read_key_set(source)
            assert "RSA with 1024 bits" in caplog.text


@pytest.mark.parametrize(
    "members", [{"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "RS512"}, {"alg": "HS256"}, {"alg": 1}, {"kty": "EC"}]
)
def test_keys_for_something_else(members: dict[str, Any]) -> None:
    with pytest.raises(KeysError):
        read_key_set(json.dumps({"keys": [public_jwk(RSA) | members]}).encode())


@pytest.mark.parametrize(
    "key",
    [
        {}, {"kty": "RSA"}, {"kty": "RSA", "n": 1, "e": "AQAB"}, {"kty": "RSA", "n": "", "e": ""}, {"kty": ["RSA"]},
        {"kty": "RSA", "n": "!!", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": "X25519", "x": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"}, {"kty": "OKP", "crv": ["Ed25519"], "x": "AA"},
        {"kty": "RSA", "n": "AQAB" * 1000, "e": "AQAB", "key_ops": 7}, {"kty": None}, {"kty": "oct", "k": "AA"},
    ],
)  # fmt: skip
def test_malformed_keys_are_left_out(key: dict[str, Any]) -> None:
    with pytest.raises(KeysError):
        read_key_set(json.dumps({"keys": [key]}).encode())
    keys = read_key_set(json.dumps({"keys": [key, public_jwk(RSA, kid="one")]}).encode())
    assert verified(token_of(), keys).principal.subject == "ann"


@pytest.mark.parametrize(
    ("size", "algorithms"),
    [(32, ("HS256",)), (48, ("HS256", "HS384")), (63, ("HS256", "HS384")), (64, ("HS256", "HS384", "HS512"))],
)
def test_a_secret_is_for_the_algorithms_that_it_is_long_enough_for(size: int, algorithms: tuple[str, ...]) -> None:
    (key,) = secret_keys(bytes(range(size))).keys
    assert key.algorithms == algorithms


def test_short_secrets() -> None:
    with pytest.raises(KeysError, match="it has 31 bytes, and at least 32 are needed"):
        secret_keys(b"x" * 31)
    with pytest.raises(KeysError, match="it has 32 bytes, and at least 64 are needed"):
        secret_keys(b"x" * 32, ("HS512",))


def test_several_secrets() -> None:
    """A rotation: tokens of the new and of the old secret are accepted, and the file may have any line breaks."""
    new, old = b"n" * 32, b"o" * 64
    for source in (new + b"\n" + old, new + b"\r\n\r\n" + old):
        keys = secret_keys(source)
        assert [key.value for key in keys.keys] == [new, old]
        for secret in (new, old):
            token = signed(claims(iss=ISSUER), secret, "HS256")
            assert verified(token, keys, auth_algorithms="HS256").principal.subject == "ann"
    with pytest.raises(KeysError, match="secret 2 in it has 31 bytes, and at least 32 are needed"):
        secret_keys(new + b"\n" + b"x" * 31)
    with pytest.raises(KeysError, match="it has 5 lines, and at most 4 secrets are tried"):
        secret_keys(b"\n".join([new] * 5))
    # Bytes with a line break among them are one secret.
    bytes_of_chance = b"\x00" * 20 + b"\n" + b"\xff" * 20
    assert [key.value for key in secret_keys(bytes_of_chance).keys] == [bytes_of_chance]


@pytest.mark.parametrize("change", [lambda token: token + "=", lambda token: token.replace(".", "=.", 1)])
def test_padding_is_refused(change: Any) -> None:
    """A token has one spelling."""
    assert refusal(change(token_of())) == jwts.MALFORMED


@pytest.mark.parametrize(("claim", "is_signed_in"), [(True, False), (False, True), (None, True), ("yes", False)])
def test_people_who_have_not_signed_in(claim: Any, is_signed_in: bool) -> None:
    read = ClaimsReader("roles", "is_anonymous").verified
    found = read({"sub": "ann", "is_anonymous": claim}, "", 0).principal
    assert SIGNED_IN.has(found) is is_signed_in
    assert ANYONE.has(found)
    assert not found.is_anonymous
    assert SIGNED_IN.has(ClaimsReader("roles", None).verified({"sub": "ann", "is_anonymous": claim}, "", 0).principal)


def test_faults_of_files_end_the_start() -> None:
    given = Settings(auth_secret_file="/etc/secret", auth_audience="x")  # type: ignore[arg-type]
    with pytest.raises(StartError, match="auth_secret_file: /etc/secret cannot be used: it has 5 bytes"):
        Tokens(given, AuthFiles(secret=b"short"))
    with pytest.raises(StartError, match=r"auth_jwks: .* cannot be used: it is not a JSON Web Key Set"):
        Tokens(Settings(auth_jwks="keys.json", auth_audience="x"), AuthFiles(key_set=b"[]"))
    assert "short" not in repr(AuthFiles(secret=b"short"))


def test_accepted_algorithms() -> None:
    assert accepted_algorithms(Settings()) == ("RS256", "PS256", "ES256", "ES384", "EdDSA")
    assert accepted_algorithms(Settings(auth_secret_file=".")) == ("HS256", "HS384", "HS512")  # type: ignore[arg-type]
    assert accepted_algorithms(Settings(auth_algorithms="RS512,ES512")) == ("RS512", "ES512")


# the header Authorization


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer abc", "abc"), ("bearer abc", "abc"), ("BEARER   abc  ", "abc"), ("Bearer", ""), ("Bearer ", ""),
        ("Basic abc", None), ("abc", None), ("", None), ("Bearerabc", None), ("Bearer\tabc", None),
    ],
)  # fmt: skip
def test_bearer_token(value: str, token: str | None) -> None:
    assert bearer_token([value]) == token


@pytest.mark.parametrize("token", ["", "a b", "a,b", "a\tb", "\xe9", "a=b", "=", '"a"', "a" * (MAX_TOKEN_BYTES + 1)])
def test_malformed_tokens(token: str) -> None:
    with pytest.raises(InvalidToken):
        check_token(token)


def test_challenges() -> None:
    assert challenge(ApiError("x"), None) == "Bearer"
    assert challenge(ApiError("x"), "https://a/b") == 'Bearer resource_metadata="https://a/b"'
    assert challenge(InvalidToken('a "b" \\ \u201c\n'), "https://a/b") == (
        'Bearer error="invalid_token", error_description="a  b      ", resource_metadata="https://a/b"'
    )


# memory


def test_bad_tokens_leave_nothing_behind() -> None:
    tokens = Tokens(Settings(auth_secret_file=".", auth_audience=AUDIENCE), AuthFiles(secret=SECRET))  # type: ignore[arg-type]
    head = f"{encoded({'alg': 'HS256'})}.{encoded(claims())}"
    for number in range(5_000):
        with pytest.raises(InvalidToken):
            tokens.principal_of(f"{head}.{number:043}")
    assert (len(tokens.cache.entries), tokens.cache.entries.bytes) == (0, 0)


def test_the_cache_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.authentication.token_cache.MAX_ENTRIES", 100)
    tokens = Tokens(Settings(auth_secret_file=".", auth_audience=AUDIENCE), AuthFiles(secret=SECRET))  # type: ignore[arg-type]
    for number in range(300):
        tokens.principal_of(signed(claims(sub=str(number)), SECRET, "HS256"))
    assert len(tokens.cache.entries) == 100


def test_a_kept_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(Settings(auth_secret_file=".", auth_audience=AUDIENCE), AuthFiles(secret=SECRET))  # type: ignore[arg-type]
    token = signed(claims(), SECRET, "HS256")
    assert tokens.principal_of(token) is tokens.principal_of(token)
    later = time.time() + 3600 + 11
    monkeypatch.setattr(time, "time", lambda: later)
    assert tokens.cache.get(hashlib.sha256(token.encode()).digest()) is None
    assert len(tokens.cache.entries) == 0
