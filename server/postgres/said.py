"""Reads what PostgreSQL says of an error besides its text and its SQLSTATE.

Source: PostgreSQL, "Error and Notice Message Fields".
"""

from __future__ import annotations

import msgspec


class Said(msgspec.Struct, frozen=True):
    """The fields of an error. Each is empty if PostgreSQL did not send it, or if the error is not one of PostgreSQL.
    severity_en: not translated. server_source_function: the C function that made the error, where the SQLSTATE does not
    say enough."""

    severity_en: str = ""
    message: str = ""
    detail: str = ""
    hint: str = ""
    schema_name: str = ""
    table_name: str = ""
    column_name: str = ""
    data_type_name: str = ""
    constraint_name: str = ""
    server_source_function: str = ""


def said(error: BaseException | None) -> Said:
    """Return what PostgreSQL says of an error."""
    as_dict = getattr(error, "as_dict", dict)
    return msgspec.convert(as_dict(), Said)
