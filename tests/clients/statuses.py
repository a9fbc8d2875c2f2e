"""Hooks of schemathesis: what statuses of this server mean, in the words of its checks."""

from __future__ import annotations

from typing import Any

import schemathesis

NO_FAULT_OF_THE_SCHEMA = {"403", "404", "409"}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Change the status of answers that the checks do not know.

    - A URL that is too long is refused.
    - Errors with different statuses are in one answer, whose status is 400: a document that fits its schema may have an
      id that does not exist, and another one that is not that of the path.
    - A 404 may be about resources that are linked, and not about the one in the path.
    """
    if response.status_code == 414:
        response.status_code = 400
    elif response.status_code in (400, 404) and response.content:
        errors = response.json()["errors"]
        found = {error["status"] for error in errors}
        if (len(found) > 1 and found <= NO_FAULT_OF_THE_SCHEMA) or all(_is_of_linked(error) for error in errors):
            response.status_code = 409


def _is_of_linked(error: dict[str, Any]) -> bool:
    return error["code"] == "related_not_found" or error["detail"].endswith("” to write.")
