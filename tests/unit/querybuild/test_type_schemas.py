"""The JSON Schema of each type: it accepts the values that the type accepts, and refuses the others."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from querybuild.declarations import types
from querybuild.declarations.arrays import array
from querybuild.declarations.database_types.names import ID_TYPES
from querybuild.declarations.types import ColumnType
from querybuild.declarations.values import ValueFault, nullable

TYPES = [one for one in vars(types).values() if isinstance(one, ColumnType) and not one.is_read_only]
TYPES += [types.enum("red", "green"), array(types.INT), array(types.TEXT), array(types.NUMERIC)]
TYPES += [array(types.INT, dimensions=2)]

SAMPLES: list[Any] = [
    *(True, 0, 1, -1, 2**15 - 1, 2**15, 2**31, 2**63, 1.5, 1e30, 1e39, [], {}, [1], ["1"], [None], ["\0"], [[]], [[1]]),
    *("", "a", "red", "true", "0", "-1.50", ".5", "5.", "1e3", "NaN", "-Infinity", "Infinit", "+-1", "a\nb", "a\0b"),
    *(
        "2024-02-29",
        "2023-02-29",
        "2024-1-1",
        "2024-05-31T23:59:59Z",
        "2024-05-31T23:59:59.5+02:00",
        "2024-05-31T23:59",
    ),
    *("23:59:59", "24:00:00", "24:00:01", "12:00", "12:00:00.1234567", "P1Y2M3DT4H5M6S", "PT", "P1H", "-P1D", "P"),
    *("123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000", "YQ==", "YWI=", "YWJj", "YQ", "Y-=="),
]


def accepts(column_type: ColumnType, value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    # `read_attribute` refuses these for every type.
    if any(isinstance(text, str) and "\0" in text for text in texts):
        return False
    try:
        column_type.json.from_json(value)
    except ValueFault:
        return False
    return True


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_the_schema_accepts_what_the_type_accepts(column_type: ColumnType) -> None:
    written = column_type.json.schema if column_type.json.written_schema is None else column_type.json.written_schema
    if column_type.family in ("json", "jsonb"):
        assert written == {}
        return
    validator = jsonschema_rs.Draft202012Validator(written, validate_formats=True)
    wrong = [one for one in SAMPLES if validator.is_valid(one) != accepts(column_type, _as_decoded(one))]
    assert wrong == []
    assert not validator.is_valid(None)
    assert jsonschema_rs.Draft202012Validator(nullable(written)).is_valid(None)


def _as_decoded(value: Any) -> Any:
    """Numbers with a point are decimals in a body."""
    return types.Decimal(repr(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("column_type", ID_TYPES, ids=str)
def test_the_schema_of_an_id_accepts_its_texts(column_type: ColumnType) -> None:
    id_type = column_type.id_type
    validator = jsonschema_rs.Draft202012Validator(id_type.schema, validate_formats=True)
    for text in ("0", "-7", "123456", "a b", "123e4567-e89b-12d3-a456-426614174000", "007", "+1", "1.0"):
        try:
            id_type.read(text)
        except ValueFault:
            assert column_type is types.UUID or not validator.is_valid(text)
        else:
            assert validator.is_valid(text)


@pytest.mark.parametrize(
    "column_type",
    [types.SMALLINT, types.INT, types.BIGINT, types.UUID, types.NUMERIC, types.enum("a b", "c(d)")],
    ids=str,
)
def test_the_pattern_of_an_id_matches_its_texts(column_type: ColumnType) -> None:
    numbers = [sign * 2**bits + other for sign in (1, -1) for bits in (0, 3, 15, 31, 63) for other in range(-30, 30)]
    numbers += [sign * 10**power for sign in (1, -1) for power in range(20)]
    texts = [*map(str, numbers), "-0", "007", "+1", "1.5", "1.50", "NaN", "a b", "a", "c(d)", "c(d", "", "1,2"]
    texts += ["123e4567-e89b-12d3-a456-426614174000", "123E4567-e89b-12d3-a456-426614174000"]
    validator = jsonschema_rs.Draft202012Validator({"pattern": f"^{column_type.id_type.pattern}$"})
    for text in texts:
        try:
            column_type.id_type.read(text)
        except ValueFault:
            assert not validator.is_valid(text), text
        else:
            assert validator.is_valid(text), text
