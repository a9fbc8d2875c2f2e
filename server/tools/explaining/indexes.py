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


def _helps(suggestion: Suggestion, statement: ExplainedStatement) -> bool:
    if not any(not scan.has_condition and scan.table == suggestion.table for scan in statement.scans):
        return False
    # PostgreSQL quotes only the names that need it.
    column = re.compile(rf"(?<![\w$]){re.escape(suggestion.columns[0])}(?![\w$])")
    found = [expression for expression in statement.expressions if column.search(expression)]
    # An index in ascending order has the nulls at the end, and at the beginning if it is read backward.
    return any(expression.endswith(" DESC NULLS LAST") == suggestion.descends for expression in found)
