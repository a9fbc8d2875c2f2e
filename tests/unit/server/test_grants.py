"""How the faults of a role without privileges are shown."""

from __future__ import annotations

from server.schema.fault import Denied, Fault, Grant, shown


def denied(privilege: str, on: str, kind: str = "") -> Fault:
    """Return the fault of a missing privilege."""
    grant = Grant(privilege, on, "clerk", kind)
    return Fault(Denied(f"no {privilege}: {grant}", grant), "thing")


def test_few_missing_privileges_are_listed_one_by_one() -> None:
    faults = [Fault("it is wrong", "thing"), denied("SELECT", '"a"')]
    assert shown(faults) == (
        ["resource “thing”: it is wrong", 'resource “thing”: no SELECT: GRANT SELECT ON "a" TO "clerk"'],
        [],
    )


def test_many_missing_privileges_are_few_statements() -> None:
    """Tables that need the same share a statement, in whatever order their faults were found."""
    faults = [
        *(denied("SELECT", '"a"'), denied("INSERT", '"a"'), denied("INSERT", '"a"'), Fault("it is wrong", "thing")),
        *(denied("INSERT", '"b"'), denied("SELECT", '"b"'), denied('UPDATE ("x", "y")', '"c"')),
        *(denied("USAGE", "a_id_seq", "SEQUENCE "), denied("USAGE", '"s"', "SCHEMA ")),
    ]
    assert shown(faults) == (
        [
            "resource “thing”: it is wrong",
            "the role “clerk” lacks 7 privileges: grant those that it needs, and take the other methods out of the "
            "declarations",
        ],
        [
            'GRANT SELECT, INSERT ON "a", "b" TO "clerk";',
            'GRANT UPDATE ("x", "y") ON "c" TO "clerk";',
            'GRANT USAGE ON SEQUENCE a_id_seq TO "clerk";',
            'GRANT USAGE ON SCHEMA "s" TO "clerk";',
        ],
    )
