"""JSON pointers into request documents (RFC 6901)."""

from __future__ import annotations

import pytest

from serializers.pointers import attribute_pointer, escape, member_pointer, relationship_pointer, tokens


@pytest.mark.parametrize(("name", "token"), [("a", "a"), ("a/b", "a~1b"), ("~1", "~01"), ("", "")])
def test_a_name_is_escaped(name: str, token: str) -> None:
    assert escape(name) == token
    assert tokens(f"/data/{token}") == ["data", name]


def test_the_parts_of_a_resource_object() -> None:
    found = [write("/data", "a/b") for write in (member_pointer, attribute_pointer, relationship_pointer)]
    assert found == ["/data/a~1b", "/data/attributes/a~1b", "/data/relationships/a~1b"]
