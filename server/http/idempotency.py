"""Reads the key of a write: the header Idempotency-Key of an IETF draft, which has expired without an RFC
(draft-ietf-httpapi-idempotency-key-header-07).

It must not know: resources, where answers are kept.
"""

from __future__ import annotations

import re

from server.errors import IDEMPOTENCY_KEY, InvalidIdempotencyKey
from server.http.headers import Headers

IDEMPOTENT_REPLAYED = "Idempotent-Replayed"

_KEY = re.compile(r'(?P<quote>"?)(?P<key>[\x21\x23-\x5b\x5d-\x7e]{1,255})(?P=quote)')


def sent_key(headers: Headers) -> str | None:
    """Return the key of a request, or None. A key may be in double quotes. Raises InvalidIdempotencyKey.

    >>> sent_key(Headers({"Idempotency-Key": ['"8e03978e"']}))
    '8e03978e'
    """
    values = headers.by_name.get(IDEMPOTENCY_KEY)
    if values is None:
        return None
    match = _KEY.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        detail = (
            f"{IDEMPOTENCY_KEY} must be one header with 1 to 255 visible ASCII characters, without quotes and "
            "backslashes inside, such as a random UUID."
        )
        raise InvalidIdempotencyKey(detail)
    return match["key"]
