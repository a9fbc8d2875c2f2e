"""The output and the error messages of a start, without a database and without a socket."""

from __future__ import annotations

import io
import socket
import ssl
import sys
from typing import Any

import pytest
from asyncpg import exceptions as pg

from server.settings import Settings, StartError
from server.settings.served import misfit
from server.startup.start import connected, say
from server.startup.unreachable import unreachable


class _Writes(io.RawIOBase):
    """Each write that reaches the terminal."""

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.found.append(bytes(piece))
        return len(self.found[-1])


@pytest.mark.parametrize("is_unbuffered", [False, True])
def test_a_line_is_one_write(is_unbuffered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes share the terminal, so a separate line break could follow the line of another process. Output
    is unbuffered with PYTHONUNBUFFERED, which container images set."""
    writes = _Writes()
    output = writes if is_unbuffered else io.BufferedWriter(writes)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=is_unbuffered))  # type: ignore[type-var]
    say("ready")
    assert writes.found == [b"ready\n"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "nothing listens there"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), ..."),
            "nothing listens there",
        ),
        (TimeoutError(), "it does not answer"),
        (
            pg.PostgresError.new({"C": "57P03", "M": "it starts", "D": "Not yet.", "H": "Wait."}),
            "it starts; DETAIL: Not yet.; HINT: Wait.",
        ),
        (OSError(), "OSError"),
    ],
)
async def test_the_reason_of_a_failed_connection_is_one_line(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("server.startup.start.open_alone", refuse)
    with pytest.raises(StartError) as raised:
        async with connected("postgresql://db/shop", Settings()):
            pass
    assert str(raised.value) == f"the database at db:5432 cannot be reached: {reason}"


def fault(code: str) -> pg.PostgresError:
    return pg.PostgresError.new({"C": code, "M": "no"})


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ConnectionRefusedError(111, "x"), "start PostgreSQL, or check the host and the port"),
        (FileNotFoundError(2, "x"), "which is the folder of its socket"),
        (socket.gaierror(-2, "x"), "check the host in database_url"),
        (TimeoutError(), "firewalls"),
        (fault("28P01"), "check the user and the password"),
        (fault("28000"), "pg_hba.conf"),
        (fault("3D000"), "createdb"),
        (fault("42501"), "GRANT CONNECT"),
        (fault("53300"), "max_connections"),
        (fault("57P03"), "try again in a moment"),
        (
            ConnectionError('PostgreSQL server at "db:5432" rejected SSL upgrade'),
            "or is no PostgreSQL: check the host and the port",
        ),
        (ConnectionError('PostgreSQL server at "db:5432" rejected SSL upgrade'), "turn on ssl"),
        (ssl.SSLCertVerificationError("x"), "sslrootcert"),
        (OSError(), "check the setting database_url"),
    ],
)
def test_what_to_do_about_a_failed_connection(error: Exception, advice: str) -> None:
    url = "postgresql://ann:s3cr3t@db/shop"
    told = unreachable(error, url, is_of_user=True)
    assert advice in told
    assert "s3cr3t" not in told
    # The embedded database has no setting that could be wrong.
    assert unreachable(error, url, is_of_user=False) == told.rpartition("; ")[0]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({}, "These are the built-in resources."),
        ({"resources": "shop.py"}, "This is the embedded database. Name their own with --database-url"),
        (
            {"resources": "shop.py", "database_url": "postgresql:///shop"},
            "Check that database_url names their database.",
        ),
    ],
)
def test_what_to_do_about_declarations_that_do_not_fit(given: Any, hint: str) -> None:
    lines = str(misfit(["a fault"], Settings(**given))).splitlines()
    assert lines[1] == "a fault"
    assert lines[2].startswith(hint)
