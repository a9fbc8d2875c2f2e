"""A long JSON text, which is read by another decoder, has the same tree or the same error as a short one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from querybuild.declarations.json_texts import JsonFault, load_json

LIMIT = 3
"""Texts with more arrays and objects count as long."""

blanks = st.text(" \t\n\r", max_size=1)
strings = st.text('ab:"\\ {[\né\0', max_size=3).map(json.dumps) | st.text("a:", max_size=2).map(json.dumps)
numbers = st.sampled_from(
    ["0", "-0", "1.50", "1E400", "-1e-7", "123456789012345678901234567890", "01", "1.", "1e99999999999999999999"]
)
leaves = strings | numbers | st.sampled_from(["null", "true", "NaN", "nul", '"', "", "[", "}"])


def _array(items: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.lists(items, max_size=3).map(lambda texts: f"[{','.join(texts)}]")


def _object(items: SearchStrategy[str]) -> SearchStrategy[str]:
    pair = st.tuples(strings, blanks, blanks, items).map(lambda parts: "{}{}:{}{}".format(*parts))
    return st.lists(pair, max_size=3).map(lambda texts: f"{{{','.join(texts)}}}")


def read(text: str, max_depth: int) -> Any:
    try:
        return repr(load_json(text, max_depth))
    except JsonFault as fault:
        return str(fault)


@given(text=st.recursive(leaves, lambda items: _array(items) | _object(items), max_leaves=8))
@example(text='{"a" :1,"a":1}')
@example(text='{"a":1,"a":"\\":"}')
@example(text='{"a:":1,"b":" :","c":{"c":1,"c":2}}')
def test_long_json(text: str) -> None:
    long = f"[{'[],' * LIMIT}{text}]"
    expected = read(long, 10**6)
    # Both decoders apply the limit for the depth.
    assert read(long, LIMIT) in (expected, f"nested deeper than {LIMIT} levels")


@pytest.mark.parametrize("depth", [LIMIT, LIMIT + 1])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("more", ["", '"[[["', '"]]]"'])
def test_depth_of_long_json(depth: int, begin: str, end: str, more: str) -> None:
    text = f"[[],[],[],{begin * (depth - 2)}[{more}]{end * (depth - 2)}]"
    if depth > LIMIT:
        assert read(text, LIMIT) == f"nested deeper than {LIMIT} levels"
    else:
        assert read(text, LIMIT) == repr(load_json(text, 10**6))
