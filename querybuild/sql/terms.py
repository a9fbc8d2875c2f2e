"""Compiles the columns of attributes, and says which of them SQL computes.

It must not know: values.
"""

from __future__ import annotations

import re

from pypika.terms import Term

from querybuild.declarations.catalog import KeyAttribute
from querybuild.declarations.resource import Attribute
from querybuild.declarations.terms import sql_of
from querybuild.planning.plan import Node
from querybuild.planning.row_plan import FIRST_ALIAS
from querybuild.sql.keys import column, columns_of, shown_key


def column_term(alias: str, attribute: Attribute) -> Term:
    """Return the column of an attribute, or its term if it is computed in SQL."""
    if attribute.sql is not None:
        return attribute.sql(lambda name: column(alias, name))
    if isinstance(attribute, KeyAttribute):
        return shown_key(columns_of(alias), attribute.key)
    return column(alias, attribute.column_name)


def reads_other_rows(node: Node) -> bool:
    """Return whether an attribute computed in SQL may read other rows, in a subquery or in a function. RETURNING sees
    these as they were before the statement."""
    return any(is_computed(attribute) for attribute in node.read)


_CALL = re.compile(r"\bSELECT\b|[\w\"]\s*\(", re.IGNORECASE)


def is_computed(attribute: Attribute) -> bool:
    """Return whether the term of an attribute has a subquery or calls a function."""
    return attribute.sql is not None and _CALL.search(sql_of(column_term(FIRST_ALIAS, attribute))) is not None
