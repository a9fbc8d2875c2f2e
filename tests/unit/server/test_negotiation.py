"""Accept and Content-Type for the JSON:API media type, its `ext` and `profile`."""

from __future__ import annotations

import time

import pytest

from serializers.json_api import MEDIA_TYPE
from server.errors import NotAcceptable, UnsupportedMediaType
from server.http.negotiation import (
    ANY,
    ATOMIC,
    ATOMIC_OPERATIONS,
    JSON_API,
    accepted_type,
    check_content_type,
)


@pytest.mark.parametrize(
    "value",
    [
        "application/vnd.api+json",
        "Application/VND.API+JSON",
        "application/vnd.api+json ",
        "application/vnd.api+json;",
        'application/vnd.api+json; profile="http://example.com/last-modified"',
        'application/vnd.api+json;profile="http://a http://b"',
        'application/vnd.api+json; PROFILE="x"',
        'application/vnd.api+json; ext=""',
        "application/json",
        "application/json; charset=utf-8",
    ],
)
def test_content_type_accepted(value: str) -> None:
    check_content_type(value, JSON_API)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "text/plain",
        "*/*",
        "application/vnd.api+json2",
        "application/x-www-form-urlencoded",
        "application/vnd.api+json; charset=utf-8",
        'application/vnd.api+json; profile="x"; charset=utf-8',
        'application/vnd.api+json; profile="a;b"; version=1',
        'application/vnd.api+json; ext="https://jsonapi.org/ext/atomic"',
        'application/vnd.api+json; ext="https://example.com/unknown"',
    ],
)
def test_content_type_refused(value: str | None) -> None:
    with pytest.raises(UnsupportedMediaType) as raised:
        check_content_type(value, JSON_API)
    assert raised.value.header == "Content-Type"


def test_extension_of_the_route() -> None:
    assert check_content_type(f'{MEDIA_TYPE}; ext="{ATOMIC}"', ATOMIC_OPERATIONS) == {ATOMIC}
    accepted_type(f'{MEDIA_TYPE}; ext="{ATOMIC}"', (ATOMIC_OPERATIONS,))
    two = f'{MEDIA_TYPE}; ext="{ATOMIC} https://example.com/x"'
    with pytest.raises(UnsupportedMediaType) as of_body:
        check_content_type(two, ATOMIC_OPERATIONS)
    with pytest.raises(NotAcceptable) as of_answer:
        accepted_type(two, (ATOMIC_OPERATIONS,))
    for raised in (of_body, of_answer):
        assert "an `ext` that this route does not have: https://example.com/x" in raised.value.detail


@pytest.mark.parametrize(
    "value",
    [
        "",
        "*/*",
        "application/*",
        "application/json",
        "text/html",
        "application/vnd.api+json",
        "application/vnd.api+json;q=0.5",
        "application/vnd.api+json; q=0.5; charset=utf-8",
        'application/vnd.api+json; profile="http://example.com/x"',
        "application/vnd.api+json; charset=utf-8, application/vnd.api+json",
        "text/html, application/vnd.api+json;q=0.9, */*;q=0.8",
        'application/vnd.api+json; profile="a, b"',
        'text/plain; x="application/vnd.api+json; charset=utf-8"',
    ],
)
def test_accept_accepted(value: str) -> None:
    accepted_type(value, (JSON_API,))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            "application/vnd.api+json; charset=utf-8",
            "the parameter 'charset', and JSON:API allows only `ext` and `profile`",
        ),
        (
            "application/vnd.api+json; charset=utf-8; q=1",
            "the parameter 'charset', and JSON:API allows only `ext` and `profile`",
        ),
        (
            "application/vnd.api+json; a=1, APPLICATION/vnd.api+json; b=2",
            "the parameter 'a', and JSON:API allows only `ext` and `profile`",
        ),
        (
            "application/vnd.api+json; a=1, */*",
            "the parameter 'a', and JSON:API allows only `ext` and `profile`",
        ),
        (
            'application/vnd.api+json; ext="https://example.com/x"',
            "an `ext` that this route does not have: https://example.com/x",
        ),
    ],
)
def test_accept_refused(value: str, problem: str) -> None:
    with pytest.raises(NotAcceptable) as raised:
        accepted_type(value, (JSON_API,))
    assert (raised.value.header, raised.value.detail) == ("Accept", f"Every {MEDIA_TYPE} of Accept has {problem}.")


def test_an_extension_belongs_to_one_of_the_media_types_of_the_route() -> None:
    extended = f'{MEDIA_TYPE}; ext="{ATOMIC}"'
    accepted_type(extended, (ANY, ATOMIC_OPERATIONS))
    with pytest.raises(NotAcceptable):
        accepted_type(extended, (ANY, JSON_API))


def test_an_unclosed_quote_is_parsed_in_linear_time() -> None:
    """A head may contain 64 KB of it. A search for the end from each position would take half a minute."""
    begin = time.process_time()
    with pytest.raises(NotAcceptable):
        accepted_type(f'{MEDIA_TYPE};a="' + '\\"' * 30_000, (JSON_API,))
    assert time.process_time() - begin < 2
