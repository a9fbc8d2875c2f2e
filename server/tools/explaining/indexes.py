"""Chooses, of the indexes that the declarations suggest, those that would help one read, and says which indexes on
values inside JSON, and for patterns and distances of texts, would.

It must not know: connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from querybuild.declarations.terms import quote_ident
from querybuild.parse import NEAR_TO, SEARCH_TEXT
from querybuild.sql.expressions import InnerValue, MatchedText, TextUse
from server.explaining.running import ExplainedStatement
from server.tools.advising.index_advisor import LONG_TEXT, Method, Suggestion, Wanted


def helpful(suggestions: Sequence[Suggestion], statements: Sequence[ExplainedStatement]) -> list[Suggestion]:
    """Return the suggestions for tables whose rows a statement finds without a condition on an index, if its conditions
    or sort keys have their first column, in their order."""
    return [suggestion for suggestion in suggestions if any(_helps(suggestion, statement) for statement in statements)]


def wanted_inside(inner: InnerValue) -> Wanted:
    """Return the index for a value inside JSON by which a read filters or sorts."""
    use = ("descending sorts" if inner.descends else "sorts") if inner.is_sorted else "filters"
    columns = (inner.name, *inner.resource.id.key.columns) if inner.is_sorted else (inner.name,)
    # PostgreSQL has statistics of an expression only if an index is on it.
    reason = f"{inner.resource.type}.{inner.name}: {use}; ANALYZE the table afterwards"
    order = " DESC NULLS LAST" if inner.descends else ""
    probe = f"ORDER BY {inner.sql}{order}" if inner.is_sorted else f"WHERE ({inner.sql}) IS NOT NULL"
    where = inner.resource.schema, inner.resource.table
    return Wanted("consider", reason, where, columns, descends=inner.descends, expression=inner.sql, probe=probe)


_PROBES: dict[TextUse, str] = {
    "beginning": "WHERE {} LIKE 'aaa%'",
    "trigrams": "WHERE {} LIKE '%aaa%'",
    "distance": "ORDER BY {} <-> 'aaa'",
}
"""What a read does with a text -> a clause that any index for it serves, also one of another kind than is proposed."""


def wanted_for_text(matched: MatchedText) -> Wanted:
    """Return the index for a text that a read finds by a pattern or by its distance. A text of any length may be too
    long for a btree."""
    resource, attribute = matched.resource, matched.attribute
    is_bounded = 0 < (attribute.max_length or 0) <= LONG_TEXT
    method: Method
    if matched.use == "distance":
        method, operators, use = "gist", "gist_trgm_ops", NEAR_TO
    elif matched.use == "beginning" and is_bounded:
        method, operators, use = "btree", "text_pattern_ops", "filters by its beginning"
    else:
        method, operators, use = "gin", "gin_trgm_ops", "filters by patterns, with the extension pg_trgm"
    return Wanted(
        "consider",
        f"{resource.type}.{attribute.name}: {use}",
        (resource.schema, resource.table),
        (attribute.column_name,),
        method=method,
        operator_class=operators,
        probe=_PROBES[matched.use].format(quote_ident(attribute.column_name)),
        is_of_text=True,
    )


def is_scanned(table: str, statement: ExplainedStatement) -> bool:
    """Return whether a statement finds rows of a table without a condition on an index."""
    return any(not scan.has_condition and scan.table == table for scan in statement.scans)


def _helps(suggestion: Suggestion, statement: ExplainedStatement) -> bool:
    if not is_scanned(suggestion.table, statement):
        return False
    if suggestion.columns == (SEARCH_TEXT,):
        return any(" @@ " in expression for expression in statement.expressions)
    # PostgreSQL quotes only the names that need it. An index on a jsonb column does not help for a value inside, and
    # one in the order of the values neither for a pattern nor for a distance.
    others = r"~|IS NOT NULL" if " USING " in suggestion.sql else r"~|<->|IS NOT NULL"
    column = re.compile(rf"(?<![\w$]){re.escape(suggestion.columns[0])}(?![\w$]| #>|\"?\)?(::text)? !?({others}))")
    helped = [expression for expression in statement.expressions if column.search(expression)]
    # An index in ascending order has the nulls at the end, and at the beginning if it is read backward.
    return any(expression.endswith(" DESC NULLS LAST") == suggestion.descends for expression in helped)
