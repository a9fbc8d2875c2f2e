"""Reads the line with which the server says that it answers."""

from __future__ import annotations

from collections.abc import Iterable

READY = "waterspout is ready on "
"""The line begins so. The address follows, and then the page of the docs if there is one."""


def address_in(lines: Iterable[str]) -> str | None:
    """Return the address on which the server answers, such as `http://127.0.0.1:8080`. None if it never did.

    lines: the output of the server, which is read no further than this line.
    """
    found = next((line for line in lines if line.startswith(READY)), None)
    return None if found is None else found.removeprefix(READY).split()[0]


def ready_line(address: str) -> str:
    """Return the line of a server that serves its docs."""
    return f"{READY}{address} with its docs on {address}/-/docs\n"


def port_of(address: str) -> int:
    """Return the port of an address."""
    return int(address.rpartition(":")[2])


def announced_address(lines: Iterable[str]) -> str:
    """Return the address on which the server answers. lines: its output. Fails if it ended before it was ready."""
    address = address_in(lines)
    assert address is not None, "the server ended before it was ready"
    return address
