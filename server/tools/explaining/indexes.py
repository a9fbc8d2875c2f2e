"""Chooses, of the indexes that the declarations suggest, those that would help one read, and says which indexes on
values inside JSON would.

It must not know: connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from querybuild.parse import SEARCH_TEXT
from querybuild.sql.expressions import InnerValue
from server.explaining.running import ExplainedStatement
from server.tools.advising.index_advisor import Suggestion, Wanted


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


def is_scanned(table: str, statement: ExplainedStatement) -> bool:
    """Return whether a statement finds rows of a table without a condition on an index."""
    return any(not scan.has_condition and scan.table == table for scan in statement.scans)


def _helps(suggestion: Suggestion, statement: ExplainedStatement) -> bool:
    if not is_scanned(suggestion.table, statement):
        return False
    if suggestion.columns == (SEARCH_TEXT,):
        return any(" @@ " in expression for expression in statement.expressions)
    # PostgreSQL quotes only the names that need it. An index on a jsonb column does not help for a value inside.
    column = re.compile(rf"(?<![\w$]){re.escape(suggestion.columns[0])}(?![\w$]| #>)")
    helped = [expression for expression in statement.expressions if column.search(expression)]
    # An index in ascending order has the nulls at the end, and at the beginning if it is read backward.
    return any(expression.endswith(" DESC NULLS LAST") == suggestion.descends for expression in helped)
