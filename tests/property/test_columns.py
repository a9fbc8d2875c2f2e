"""Converting and checking the values of many rows as a column gives the same result as one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.declarations.attributes import checks_of, read_attribute, read_column
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.json_texts import JsonFault, check_texts, load_json
from querybuild.declarations.values import ValueFault
from server.resources import built_in
from tests import catalog as corner
from tests.property.values import dump, near, trees


@pytest.mark.parametrize("catalog", [built_in(), corner.CATALOG], ids=["people", "corners"])
@given(data=st.data())
def test_a_column_equals_its_values(catalog: Catalog, data: DataObject) -> None:
    attributes = [one for resource in catalog.resources for one in resource.attributes if one.is_stored]
    attribute = data.draw(st.sampled_from(attributes))
    drawn = data.draw(st.lists(near(attribute) | st.none() | trees if data.draw(st.booleans()) else near(attribute)))
    values = [value for value in map(_as_received, drawn) if value is not _REFUSED]
    checks = checks_of(attribute)
    try:
        each: list[Any] | None = [read_attribute(attribute, value, checks) for value in values]
    except ValueFault:
        each = None
    try:
        column: list[Any] | None = list(read_column(attribute, values, checks))
    except ValueFault:
        column = None
    assert repr(column) == repr(each)


_REFUSED = object()


def _as_received(value: Any) -> Any:
    try:
        value = load_json(dump(value))
        check_texts(value)
    except JsonFault:
        return _REFUSED
    return value
