"""Names the signature algorithms of tokens (RFC 7518, 3.1, RFC 8037), and which kind of key each needs."""

from __future__ import annotations

OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
OF_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}
"""The algorithm of each curve."""

PUBLIC = (*OF_RSA, *dict.fromkeys(OF_CURVES.values()))
"""The algorithms with public keys."""

PUBLIC_BY_DEFAULT = ("RS256", "PS256", "ES256", "ES384", "EdDSA")
"""The algorithms that are accepted if `auth_algorithms` is not set and there is no secret."""

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The algorithms with a secret, and the shortest secret of each (RFC 7518, 3.2)."""
