"""Defines the filter operators, one row for each. What comes in: the type of an attribute and a value of the request.
What goes out: the bound value, and the criterion for PyPika. To add an operator, add a row here; a test compares the
documentation with this table.

The SQL of each row is in the comment above it. `jsonb_contains` is not in the table: it is a custom operator, as a user
would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any, Literal

import msgspec
from pypika import functions
from pypika.terms import Criterion, Term

from querybuild.declarations.database_types.json_paths import JSON_VALUE
from querybuild.declarations.database_types.searches import MAX_SEARCH, is_searchable, search_text
from querybuild.declarations.database_types.texts import (
    CIDR,
    CONTAINED,
    CONTAINERS,
    HSTORE,
    INET,
    LTREE,
    OVERLAPPING,
    SPATIAL,
)
from querybuild.declarations.patterns import check_pattern
from querybuild.declarations.resource import Attribute, Operator
from querybuild.declarations.terms import Template, equals_any
from querybuild.declarations.types import JSONB, TEXT, ColumnType
from querybuild.declarations.values import WITHOUT_NUL, JsonSchema, ValueFault, json_of

MAX_PATTERN = 200
"""How many characters a regular expression may have."""

_LIKE: JsonSchema = {"type": "string", "pattern": r"^[^%\u0000]*$|^([^\\\u0000]|\\[^\u0000])*$"}
"""A text without `%`, or a pattern that does not end in a single backslash."""

Arity = Literal["one", "list", "pair"]
Applies = Callable[[Attribute], bool]


class OperatorRow(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """An operator.

    arity: `one` value, a `list` or a `pair`.
    applies: which attributes have it.
    criterion: takes the column and the bound parameters.
    on_null: the criterion for a null val.
    on_field: the criterion for another column, if that makes sense.
    value_type: the type of the val, if the operator belongs to the type of the attribute.
    prepare: converts the value, after it was converted to its type.
    is_text: whether the column is cast to text.
    schema: the JSON Schema of the val, if it is not that of its type.
    only_null: which attributes only accept null.
    matches_null: whether it may match null although it has no `on_null`: it does for an empty list.
    is_pattern: whether the val is a regular expression: only PostgreSQL knows which ones are valid, and a match may
        take long.
    compares_columns: whether it compares each column of a key.
    is_search: whether it takes the words of the column, and a query for words.
    unites_lists: whether a value that matches one of two lists matches the list of both.
    """

    name: str
    aliases: tuple[str, ...] = ()
    arity: Arity = "one"
    applies: Applies
    criterion: Callable[..., Criterion]
    on_null: Callable[[Term], Criterion] | None = None
    on_field: Callable[[Term, Term], Criterion] | None = None
    value_type: Callable[[ColumnType], ColumnType] | None = None
    prepare: Callable[[Any], Any] | None = None
    is_text: bool = False
    schema: JsonSchema | None = None
    only_null: Applies = lambda _: False
    matches_null: bool = False
    is_pattern: bool = False
    compares_columns: bool = False
    is_search: bool = False
    unites_lists: bool = False

    def value_type_of(self, attribute: Attribute) -> ColumnType:
        """Return the type of the val, or of its items for a list operator."""
        if self.value_type is not None:
            return self.value_type(attribute.type)
        return attribute.type if self.arity == "one" else attribute.type.element or attribute.type


def _is_plain(attribute: Attribute) -> bool:
    """Return whether the type has equality, in SQL and in the contract."""
    return attribute.type.comparison.has_equality


def _is_inside_json(attribute: Attribute) -> bool:
    return attribute.type is JSON_VALUE


def _is_column(attribute: Attribute) -> bool:
    return _is_plain(attribute) and not _is_inside_json(attribute)


def _is_composite(attribute: Attribute) -> bool:
    return _is_plain(attribute) and bool(attribute.type.fields)


def _has_one_value(attribute: Attribute) -> bool:
    return _is_plain(attribute) and not attribute.type.fields


def _is_not_plain(attribute: Attribute) -> bool:
    return not attribute.type.comparison.has_equality


def _is_scalar(attribute: Attribute) -> bool:
    return _is_plain(attribute) and attribute.type.element is None


def _is_array(attribute: Attribute) -> bool:
    return _is_plain(attribute) and attribute.type.element is not None


def _is_in(types: Container[ColumnType]) -> Applies:
    return lambda attribute: attribute.type in types


def _is_ordered(attribute: Attribute) -> bool:
    return attribute.type.comparison.is_ordered


def _is_text(attribute: Attribute) -> bool:
    return attribute.type.is_text


def _can_match(attribute: Attribute) -> bool:
    return attribute.type.is_text and not attribute.type.choices and attribute.match


_is_network = _is_in((INET, CIDR))


def _itself(column_type: ColumnType) -> ColumnType:
    return column_type


def _infix(sql: str) -> Callable[[Term, Term], Criterion]:
    return lambda column, other: Template("{}" + sql + "{}", column, other)


def _call(name: str) -> Callable[[Term, Term], Criterion]:
    return lambda column, other: Template(name + "({},{})", column, other)


def escaped(text: str) -> str:
    """Escape a text for LIKE, so that it is matched literally. Backslash is PostgreSQL's escape character."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def pattern(text: str) -> str:
    """Return the LIKE pattern for a text. A text with `%` is a pattern. Any other text is searched literally.

    Raises ValueFault for a pattern that ends in the escape character. PostgreSQL only refuses it when it reaches the
    end of the pattern, which depends on the rows.
    """
    if "%" not in text:
        return f"%{escaped(text)}%"
    if (len(text) - len(text.rstrip("\\"))) % 2:
        raise ValueFault("a LIKE pattern that does not end in a single backslash (write two for a literal one)")
    return text


def _regular_expression(text: str) -> str:
    if len(text) > MAX_PATTERN:
        raise ValueFault(f"a regular expression of at most {MAX_PATTERN} characters")
    check_pattern(text)
    return text


_OVERLAP = "{} OPERATOR(pg_catalog.&&) {}"
"""The extension intarray has another `&&`, for arrays of integers without nulls."""


def _overlaps(column: Term, bound: Term) -> Criterion:
    return Template(f"({_OVERLAP} AND cardinality({{}})>0)", column, bound, bound)


def _overlaps_none(column: Term, bound: Term) -> Criterion:
    return Template(f"(NOT {_OVERLAP} OR cardinality({{}})=0)", column, bound, bound)


def _contained(column: Term, other: Term) -> Criterion:
    return Template("strpos({},{})>0", column, other)


def _contained_in_lower_case(column: Term, other: Term) -> Criterion:
    return _contained(functions.Lower(column), functions.Lower(other))


def _starts(column: Term, other: Term) -> Criterion:
    return Template("starts_with({},{})", column, other)


def _negated(criterion: Callable[[Term, Term], Criterion]) -> Callable[[Term, Term], Criterion]:
    return lambda column, other: Template("NOT {}", criterion(column, other))


def _is_null(column: Term) -> Criterion:
    return column.isnull()


def _is_not_null(column: Term) -> Criterion:
    return column.isnotnull()


_EQ, _NE = _infix("="), _infix("<>")
_SAME, _DISTINCT = _infix(" IS NOT DISTINCT FROM "), _infix(" IS DISTINCT FROM ")


def _is_same(column: Term, bound: Term) -> Criterion:
    """Compile IS NOT DISTINCT FROM a value that is not null, in a form for which PostgreSQL can use an index."""
    return Template("({}={} AND {} IS NOT NULL)", column, bound, column)


_OF_COLUMNS: tuple[OperatorRow, ...] = (
    # "t0"."age"=$1
    OperatorRow(name="eq", applies=_is_column, criterion=_EQ, on_field=_EQ, compares_columns=True),
    # "t0"."age"<>$1
    OperatorRow(name="ne", applies=_is_plain, criterion=_NE, on_field=_NE),
    # "t0"."age"<$1
    OperatorRow(name="lt", applies=_is_ordered, criterion=_infix("<"), on_field=_infix("<")),
    OperatorRow(name="le", applies=_is_ordered, criterion=_infix("<="), on_field=_infix("<=")),
    OperatorRow(name="gt", applies=_is_ordered, criterion=_infix(">"), on_field=_infix(">")),
    OperatorRow(name="ge", applies=_is_ordered, criterion=_infix(">="), on_field=_infix(">=")),
    # "t0"."age" BETWEEN $1 AND $2
    OperatorRow(
        name="between",
        arity="pair",
        applies=_is_ordered,
        criterion=lambda column, low, high: Template("{} BETWEEN {} AND {}", column, low, high),
    ),
    # "t0"."age"=ANY($1)
    OperatorRow(
        name="in_",
        aliases=("in",),
        arity="list",
        applies=_is_scalar,
        criterion=equals_any,
        compares_columns=True,
        unites_lists=True,
    ),
    # "t0"."age"<>ALL($1)
    OperatorRow(
        name="notin_",
        arity="list",
        applies=_is_scalar,
        criterion=lambda column, bound: Template("{}<>ALL({})", column, bound),
        matches_null=True,
    ),
    # ("t0"."words" OPERATOR(pg_catalog.&&) $1 AND cardinality($1)>0): the list contains the string, or the two lists
    # overlap. For an empty list it is false and never null, so that `not` of it matches everything, like notin_ with an
    # empty list
    OperatorRow(
        name="in_",
        aliases=("in",),
        arity="list",
        applies=_is_array,
        criterion=_overlaps,
        on_field=partial(Template, _OVERLAP),
    ),
    # (NOT "t0"."words" OPERATOR(pg_catalog.&&) $1 OR cardinality($1)=0): an empty list excludes nothing, not even null
    OperatorRow(name="notin_", arity="list", applies=_is_array, criterion=_overlaps_none, matches_null=True),
    # "t0"."age" IS NULL, ("t0"."age"=$1 AND "t0"."age" IS NOT NULL)
    # with another column: "t0"."age" IS NOT DISTINCT FROM "t0"."id", which is true of two nulls
    OperatorRow(name="is_", applies=_has_one_value, criterion=_is_same, on_null=_is_null, on_field=_SAME),
    # a composite value with a null in it is not IS NOT NULL
    OperatorRow(name="is_", applies=_is_composite, criterion=_SAME, on_null=_is_null, on_field=_SAME),
    # "t0"."age" IS NOT NULL, "t0"."age" IS DISTINCT FROM $1
    OperatorRow(name="isnot", applies=_is_plain, criterion=_DISTINCT, on_null=_is_not_null, on_field=_DISTINCT),
    # "t0"."meta" IS NULL, and nothing else: these types have no equality
    OperatorRow(name="is_", applies=_is_not_plain, criterion=_EQ, on_null=_is_null, only_null=_is_not_plain),
    OperatorRow(
        name="isnot", applies=_is_not_plain, criterion=_DISTINCT, on_null=_is_not_null, only_null=_is_not_plain
    ),
    # "t0"."name" LIKE $1
    OperatorRow(
        name="like",
        applies=_is_text,
        criterion=_infix(" LIKE "),
        on_field=_contained,
        prepare=pattern,
        is_text=True,
        schema=_LIKE,
    ),
    # "t0"."name" ILIKE $1
    OperatorRow(
        name="ilike",
        applies=_is_text,
        criterion=_infix(" ILIKE "),
        on_field=_contained_in_lower_case,
        prepare=pattern,
        is_text=True,
        schema=_LIKE,
    ),
    # "t0"."name" NOT LIKE $1
    OperatorRow(
        name="notlike",
        applies=_is_text,
        criterion=_infix(" NOT LIKE "),
        on_field=_negated(_contained),
        prepare=pattern,
        is_text=True,
        schema=_LIKE,
    ),
    # "t0"."name" NOT ILIKE $1
    OperatorRow(
        name="notilike",
        applies=_is_text,
        criterion=_infix(" NOT ILIKE "),
        on_field=_negated(_contained_in_lower_case),
        prepare=pattern,
        is_text=True,
        schema=_LIKE,
    ),
    # "t0"."name" LIKE $1
    OperatorRow(
        name="startswith",
        applies=_is_text,
        criterion=_infix(" LIKE "),
        on_field=_starts,
        prepare=lambda text: escaped(text) + "%",
        is_text=True,
    ),
    OperatorRow(
        name="endswith",
        applies=_is_text,
        criterion=_infix(" LIKE "),
        on_field=lambda column, other: Template("right({},length({}))={}", column, other, other),
        prepare=lambda text: "%" + escaped(text),
        is_text=True,
    ),
    # "t0"."name"~$1
    OperatorRow(
        name="match",
        applies=_can_match,
        criterion=_infix("~"),
        on_field=_infix("~"),
        prepare=_regular_expression,
        is_text=True,
        schema={"type": "string", "format": "regex", "maxLength": MAX_PATTERN},
        is_pattern=True,
    ),
    # "t0"."nights"@>CAST(CAST($1 AS TEXT) AS pg_catalog.daterange)
    OperatorRow(name="contains", applies=_is_in(CONTAINED), value_type=CONTAINED.__getitem__, criterion=_infix("@>")),
    OperatorRow(
        name="contained_in", applies=_is_in(CONTAINERS), value_type=CONTAINERS.__getitem__, criterion=_infix("<@")
    ),
    OperatorRow(name="overlaps", applies=_is_in(OVERLAPPING), value_type=_itself, criterion=_infix("&&")),
    # "t0"."address">>=CAST(CAST($1 AS TEXT) AS pg_catalog.inet): the network contains the other one, or is the same
    OperatorRow(name="contains", applies=_is_network, value_type=lambda _: INET, criterion=_infix(">>=")),
    OperatorRow(name="contained_in", applies=_is_network, value_type=lambda _: INET, criterion=_infix("<<=")),
    OperatorRow(name="overlaps", applies=_is_network, value_type=lambda _: INET, criterion=_infix("&&")),
    # ST_Covers("t0"."area",CAST(CAST($1 AS TEXT) AS geometry)): a point on the border is contained
    OperatorRow(name="contains", applies=_is_in(SPATIAL), value_type=_itself, criterion=_call("ST_Covers")),
    OperatorRow(name="contained_in", applies=_is_in(SPATIAL), value_type=_itself, criterion=_call("ST_CoveredBy")),
    OperatorRow(name="overlaps", applies=_is_in(SPATIAL), value_type=_itself, criterion=_call("ST_Intersects")),
    # "t0"."path"@>CAST(CAST($1 AS TEXT) AS ltree): it is above the other one, or the same
    OperatorRow(name="ancestor_of", applies=_is_in((LTREE,)), value_type=_itself, criterion=_infix("@>")),
    OperatorRow(name="descendant_of", applies=_is_in((LTREE,)), value_type=_itself, criterion=_infix("<@")),
    # exist("t0"."facts",$1)
    OperatorRow(
        name="has_key",
        applies=_is_in((HSTORE,)),
        value_type=lambda _: TEXT,
        criterion=_call("exist"),
    ),
    # "t0"."words"@@websearch_to_tsquery($1): the words of a search, which is never invalid
    OperatorRow(
        name="search",
        applies=is_searchable,
        value_type=lambda _: TEXT,
        prepare=search_text,
        criterion=_infix("@@"),
        schema={"type": "string", "maxLength": MAX_SEARCH, "pattern": WITHOUT_NUL},
        is_search=True,
    ),
)


def _inside_json(row: OperatorRow) -> OperatorRow:
    """Return an operator for values inside JSON, each of which has its own type. It is false for values of another type
    than that of the val, and null for null. Texts have the operators of texts."""
    kind = "jsonb_typeof({})"

    def texts(column: Term, *others: Term) -> Criterion:
        # (jsonb_typeof("t0"."words"#>$1)='string' AND ("t0"."words"#>$1#>>'{}') LIKE $2)
        return Template(f"({kind}='string' AND {{}})", column, row.criterion(_inner_text(column), *others))

    def of_one_kind(column: Term, *others: Term) -> Criterion:
        # ("t0"."words"#>$1<$2 AND jsonb_typeof("t0"."words"#>$1)=jsonb_typeof($2))
        same = f" AND {kind}={kind}" * len(others)
        kinds = [term for other in others for term in (column, other)]
        return Template(f"({{}}{same})", row.criterion(column, *others), *kinds)

    def fields(column: Term, other: Term) -> Criterion:
        if row.is_text:
            assert row.on_field is not None
            compared = row.on_field(_inner_text(column), _inner_text(other))
            condition = Template(f"{kind}='string' AND {kind}='string' AND {{}}", column, other, compared)
        else:
            # Objects and arrays do not compare.
            condition = Template(f"{{}} AND {kind} NOT IN ('object','array')", compare(column, other), column)
        # SQL's AND is false for null and false.
        return Template("(CASE WHEN {} IS NOT NULL AND {} IS NOT NULL THEN {} END)", column, other, condition)

    compare = row.criterion if row.name == EQUAL.name else of_one_kind
    return msgspec.structs.replace(
        row,
        applies=lambda attribute: _is_inside_json(attribute) and (attribute.match or not row.is_pattern),
        criterion=texts if row.is_text else compare,
        on_field=None if row.on_field is None else fields,
        compares_columns=False,
    )


def _inner_text(value: Term) -> Term:
    return Template("({}#>>'{{}}')", value)


EQUAL, SEARCH = [next(row for row in _OF_COLUMNS if row.name == name) for name in ("eq", "search")]
_INSIDE_JSON = [_inside_json(row) for row in _OF_COLUMNS if row is EQUAL or row.applies is _is_ordered or row.is_text]
OPERATORS = (*_OF_COLUMNS, *_INSIDE_JSON)


def _names(rows: Iterable[OperatorRow]) -> frozenset[str]:
    return frozenset([name for row in rows for name in (row.name, *row.aliases)])


NULL_OPERATORS = _names(row for row in OPERATORS if row.matches_null or row.on_null is not None)
"""The names of those that may match null."""
PATTERN_OPERATORS = _names(row for row in OPERATORS if row.is_pattern)
"""The names of those whose val is a regular expression."""

TEXT_OPERATORS = _names(row for row in OPERATORS if row.is_text)
"""The names of those that look into a text."""


def _contains_json(attribute: Attribute, column: Term, bound: Term, name: str) -> tuple[Criterion, list[Any]]:
    return Template("{}@>{}", column, bound), []


def _object_or_array(value: Any) -> str:
    if isinstance(value, dict | list):
        return json_of(value)
    raise ValueFault("a JSON object or array")


JSONB_CONTAINS = Operator(
    "jsonb_contains", read=_object_or_array, criterion=_contains_json, schema={"type": ["object", "array"]}
)
"""`"t0"."meta"@>$1`. Every jsonb attribute has it."""


def custom_operators(attribute: Attribute) -> tuple[Operator, ...]:
    """Return the custom operators of the attribute and of its type."""
    own = attribute.operators
    if attribute.type is JSONB and all(operator.name != JSONB_CONTAINS.name for operator in own):
        return (*own, JSONB_CONTAINS)
    return own


def find_operator(attribute: Attribute, name: str) -> OperatorRow | Operator | None:
    """Return the operator of the attribute with this name, or None. A custom operator overrides one of the table."""
    for custom in custom_operators(attribute):
        if custom.name == name:
            return custom
    return next(
        (row for row in OPERATORS if (name == row.name or name in row.aliases) and row.applies(attribute)),
        None,
    )


def operator_names(attribute: Attribute) -> tuple[str, ...]:
    """Return the names of the operators of an attribute, for messages."""
    return (
        *(row.name for row in OPERATORS if row.applies(attribute)),
        *(custom.name for custom in custom_operators(attribute)),
    )


def all_names() -> frozenset[str]:
    """Return the names of all operators, including those of relationships, to distinguish unknown from misplaced
    ones."""
    return _names(OPERATORS) | {JSONB_CONTAINS.name, "any", "has", "count"}
