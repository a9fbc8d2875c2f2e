"""Chooses, of the indexes that the declarations suggest, those that would help one read.

It must not know: connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from server.tools.advising.index_advisor import Suggestion
from server.tools.explaining.running import ExplainedStatement


def helpful(suggestions: Sequence[Suggestion], statements: Sequence[ExplainedStatement]) -> list[Suggestion]:
    """Return the suggestions for tables whose rows a statement finds without a condition on an index, if its conditions
    or sort keys have their first column, in their order."""
    return [suggestion for suggestion in suggestions if any(_helps(suggestion, statement) for statement in statements)]


def is_scanned(table: str, statement: ExplainedStatement) -> bool:
    """Return whether a statement finds rows of a table without a condition on an index."""
    return any(not scan.has_condition and scan.table == table for scan in statement.scans)


def _helps(suggestion: Suggestion, statement: ExplainedStatement) -> bool:
    if not is_scanned(suggestion.table, statement):
        return False
    # PostgreSQL quotes only the names that need it. An index on a jsonb column does not help for a value inside.
    column = re.compile(rf"(?<![\w$]){re.escape(suggestion.columns[0])}(?![\w$]| #>)")
    found = [expression for expression in statement.expressions if column.search(expression)]
    # An index in ascending order has the nulls at the end, and at the beginning if it is read backward.
    return any(expression.endswith(" DESC NULLS LAST") == suggestion.descends for expression in found)
