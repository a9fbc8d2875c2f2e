"""Says how the principal of a request sees the declarations, and what of a context a plan depends on."""

from __future__ import annotations

from querybuild.planning.context import Context, View
from querybuild.shortcuts import Knows

CONTEXT = Knows(Context, used=("access", "values"), ignored=("principal",))
"""What is known of a context where a read or a write is planned once for many requests: the access is in the key, and
the values are for slots."""


def view_of(context: Context, view: View) -> View:
    """Return the declarations as the principal sees them. view: all of them."""
    return context.access.view or view
