"""Query strings of pages: what their links change, and what they leave."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from serializers.pages.queries import ListQuery

LONG = '{"name":"n","op":"eq","val":0.12345678901234567890123}'
SHORT = '{"name":"age","op":"ge","val":18}'


def filters(url: str) -> list[str]:
    return [value for name, value in parse_qsl(url.partition("?")[2]) if name == "filter"]


def test_a_filter_that_is_removed_leaves_the_digits_of_the_others() -> None:
    long, short = ListQuery("/t", (("filter", f"[{LONG},{SHORT}]"),)).chips()
    assert (long.text, short.text) == ("n = 0.12345678901234567890123", "age ≥ 18")
    assert (filters(long.without), filters(short.without)) == ([f"[{SHORT}]"], [f"[{LONG}]"])


@pytest.mark.parametrize("text", ["[", "3", "[]", '{"a'])
def test_what_is_no_filter_is_shown_as_it_is(text: str) -> None:
    [chip] = ListQuery("/t", (("filter", text), ("sort", "age"))).chips()
    assert (chip.text, chip.number, chip.without) == (text, None, "/t?sort=age")
