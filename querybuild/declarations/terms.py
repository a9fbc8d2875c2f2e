"""Defines the PostgreSQL terms that PyPika lacks. The SQL of each is in its docstring.

It must not know: values. They are parameters. All names come from declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pypika import Field, Table, functions
from pypika.terms import Criterion, Term


class Template(Criterion):
    """SQL text with terms in it: `Template("{} = ANY({})", column, parameter)` is `"t0"."id" = ANY($1)`.

    The text never comes from a request.
    """

    def __init__(self, text: str, *terms: Term) -> None:
        super().__init__()
        self.text = text
        self.terms = terms

    def get_sql(self, **kwargs: Any) -> str:
        """Return the SQL, as PyPika calls it."""
        with_alias = kwargs.pop("with_alias", False)
        kwargs["subquery"] = True
        sql = self.text.format(*(term.get_sql(**kwargs) for term in self.terms))
        return f'{sql} "{self.alias}"' if with_alias and self.alias else sql


def sql_of(part: Term | Table) -> str:
    """Return the SQL of a term, or of a table with its alias, for statements that are composed as text."""
    return str(part.get_sql(quote_char='"'))


def quote_ident(name: str) -> str:
    """Return a name for a statement, like PostgreSQL's quote_ident, but always in quotes.

    >>> quote_ident('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def escaped_braces(sql: str) -> str:
    """Escape SQL for the text of a Template. Names of types, tables and columns may contain braces.

    >>> escaped_braces('"a{b}"')
    '"a{{b}}"'
    """
    return sql.replace("{", "{{").replace("}", "}}")


def cast_from_text(sql_type: str) -> Callable[[Term], Term]:
    """Return the cast of a text parameter: `CAST(CAST($1 AS TEXT) AS pg_catalog.inet)`."""
    text = "CAST(CAST({} AS TEXT) AS " + escaped_braces(sql_type) + ")"
    return lambda parameter: Template(text, parameter)


def as_text(column: Term) -> Term:
    """Return `CAST("t0"."price" AS TEXT)`."""
    return functions.Cast(column, "TEXT")


def as_texts(column: Term) -> Term:
    """Return an array that is selected without unnesting (docs/adr/0013-values-as-text.md)."""
    return functions.Cast(column, "TEXT[]")


def cast_as(sql_type: str) -> Callable[[Term], Term]:
    """Return the cast of a parameter: `CAST($1 AS int4)`."""
    return lambda parameter: Template("CAST({} AS " + escaped_braces(sql_type) + ")", parameter)


def equals_any(term: Term, array: Term) -> Criterion:
    """Return `"t0"."id"=ANY($1)`. The statement is the same for a list of any length."""
    return Template("{}=ANY({})", term, array)


def ordered(term: Term, *, is_descending: bool, is_nullable: bool, is_backwards: bool = False) -> Term:
    """Return `"t0"."age" DESC NULLS LAST`, or backwards `"t0"."age" NULLS FIRST`. NULLS is only written if it changes
    the order. In ascending order nulls are last by default. For a NOT NULL column, NULLS would prevent PostgreSQL from
    reading a plain index backwards."""
    direction = " DESC" if is_descending != is_backwards else ""
    nulls = " NULLS FIRST" if is_backwards else " NULLS LAST"
    return Template("{}" + direction + nulls * (is_nullable and is_descending), term)


def unnested(
    select: Callable[[Term], Term], dimensions: int = 2, is_plain: Callable[[Term], Term] | None = None
) -> Callable[[Term], Term]:
    """Return a `select` for arrays that applies `select` to each element, but not to an array that `is_plain`. Null
    stays null, an empty array stays empty, and an array of two dimensions, or of the given number, keeps them. One of
    more dimensions is shown as one list.

    `CASE WHEN array_ndims("t0"."a")=2 THEN (SELECT array_agg("x" ORDER BY "n") FROM (SELECT
    ("n"-1)/array_length("t0"."a",2) AS "n",array_agg(CAST("x" AS TEXT) ORDER BY "n") AS "x" FROM unnest("t0"."a") WITH
    ORDINALITY AS "(elements)" ("x","n") GROUP BY 1) "(elements)") WHEN "t0"."a" IS NULL THEN NULL ELSE ARRAY(SELECT
    CAST("x" AS TEXT) FROM unnest("t0"."a") AS "x") END`

    PostgreSQL assumes that `generate_subscripts` returns 1,000 rows. With two of them for each row, a page of 30 rows
    seemed so expensive that it compiled the statement (`jit`): 77 ms instead of 0.2.
    """
    count = max(2, dimensions)
    # No table has this name, so that the array can be that of a table.
    name = '"(elements)"'
    nested, element, number = f'unnest({{0}}) WITH ORDINALITY AS {name} ("x","n")', "{1}", '("n"-1)/'
    for dimension in range(count, 1, -1):
        nested = (
            f'(SELECT {number}array_length({{0}},{dimension}) AS "n",array_agg({element} ORDER BY "n") AS "x" '
            f"FROM {nested} GROUP BY 1) {name}"
        )
        element, number = '"x"', '"n"/'
    text = (
        f'CASE WHEN array_ndims({{0}})={count} THEN (SELECT array_agg("x" ORDER BY "n") FROM {nested}) '
        'WHEN {0} IS NULL THEN NULL ELSE ARRAY(SELECT {1} FROM unnest({0}) AS "x") END'
    )
    shown = select(Field("x"))
    if is_plain is None:
        return lambda array: Template(text, array, shown)
    return lambda array: Template(f"CASE WHEN {{2}} THEN {{0}} ELSE {text} END", array, shown, is_plain(array))
