"""An issuer of tokens for tests: its keys, its tokens, and a server with discovery, keys and introspection.

What it answers can be changed while it runs, to a fault or to garbage.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

AUDIENCE = "https://api.example.org"
CLIENT, CLIENT_SECRET = "waterspout", "a secret of the client: %&+"
DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"
INTROSPECTION = "/introspect"


@cache
def private_key(algorithm: str, number: int = 0, *, bits: int = 2048) -> Any:
    """Return a private key for an algorithm. number: tells several of them apart."""
    match algorithm[:2], algorithm[-3:]:
        case "ES", size:
            return ec.generate_private_key({"256": ec.SECP256R1, "384": ec.SECP384R1, "512": ec.SECP521R1}[size]())
        case "Ed", _:
            return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, bits)


def public_jwk(key: Any, **members: Any) -> dict[str, Any]:
    """Return the JSON Web Key of a key."""
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    kind: Any = next((found for base, found in kinds.items() if isinstance(key, base)), OKPAlgorithm)
    jwk: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return {**jwk, **members}


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def claims(**changed: Any) -> dict[str, Any]:
    """Return the claims of a token that is valid for an hour. changed: those that are other, or None to leave out."""
    now = int(time.time())
    usual = {"sub": "ann", "aud": AUDIENCE, "exp": now + 3600, "iat": now, "nbf": now}
    return {name: value for name, value in (usual | changed).items() if value is not None}


def encoded(value: Any) -> str:
    """Return a part of a token. value: bytes, or a value for JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: Any, key: Any, algorithm: str = "RS256", header: Mapping[str, Any] | None = None) -> str:
    """Return a token over any payload. payload: claims, or the bytes to sign."""
    if isinstance(payload, bytes):
        head: dict[str, Any] | None = dict(header or {})
        return jwt.api_jws.encode(payload, key, algorithm, head)
    return jwt.encode(payload, key, algorithm, dict(header or {}))


class Issuer:
    """An issuer. keys: those that it publishes, by their names. answers: what it answers instead, by path: bytes, a
    status, or a function of the handler. asked: how often each path was asked for. active: the opaque tokens that it
    knows, with the members of the answer."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {"one": ("RS256", private_key("RS256"))}
        self.answers: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        self.active: dict[str, dict[str, Any]] = {}
        self.heard: list[tuple[str, str]] = []
        self.url = ""
        self._server: HTTPServer | None = None

    def start(self) -> None:
        """Start to answer. Call it in the event loop."""
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self._server = HTTPServer(Application([(r"(/.*)", _Handler, {"issuer": self})], log_function=lambda _: None))
        sockets = bind_sockets(port, "127.0.0.1")
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
            self._server = None

    def key_set(self) -> bytes:
        """Return the JSON Web Key Set."""
        keys = [public_jwk(key, kid=kid, alg=algorithm) for kid, (algorithm, key) in self.keys.items()]
        return json.dumps({"keys": keys}).encode()

    def token(self, kid: str = "one", **changed: Any) -> str:
        """Return a token that is signed with one of the keys. changed: claims."""
        algorithm, key = self.keys[kid]
        return signed(claims(**({"iss": self.url or None} | changed)), key, algorithm, {"kid": kid})

    def document(self, path: str) -> Any:
        """Return what is at a path, or a status."""
        if path == DISCOVERY:
            return json.dumps({"issuer": self.url, "jwks_uri": self.url + KEYS}).encode()
        return self.key_set() if path == KEYS else 404


class _Handler(RequestHandler):
    """Answers for an issuer."""

    def initialize(self, issuer: Issuer) -> None:
        self.issuer = issuer

    async def get(self, path: str) -> None:
        await self._answer(path, self.issuer.document(path))

    async def post(self, path: str) -> None:
        token = self.get_body_argument("token", "")
        self.issuer.heard.append((self.request.headers.get("Authorization", ""), token))
        active = self.issuer.active.get(token)
        answer = {"active": False} if active is None else {"active": True, **active}
        await self._answer(path, json.dumps(answer).encode() if path == INTROSPECTION else 404)

    async def _answer(self, path: str, usual: Any) -> None:
        self.issuer.asked[path] += 1
        answer = self.issuer.answers.get(path, usual)
        if callable(answer):
            answer = answer(self)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if isinstance(answer, int):
            self.set_status(answer)
        elif answer is not None:
            self.write(answer)


def write_key_set(folder: Path, issuer: Issuer) -> Path:
    """Write the keys of an issuer into a file."""
    path = folder / "keys.json"
    path.write_bytes(issuer.key_set())
    return path
