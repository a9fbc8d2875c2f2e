"""Says why a database cannot be reached, and what to do.

It must not know: connections, the command line.
"""

from __future__ import annotations

import socket
import ssl

from asyncpg import exceptions as pg

from server.postgres.driver_errors import in_one_line
from server.postgres.hosts import describe_hosts

_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (pg.InvalidPasswordError, "check the user and the password in database_url (without one: PGPASSWORD, ~/.pgpass)"),
    (pg.InvalidAuthorizationSpecificationError, "check the user in database_url, and what pg_hba.conf allows"),
    (pg.InvalidCatalogNameError, "check the name of the database in database_url, or create it with createdb"),
    (pg.InsufficientPrivilegeError, "GRANT CONNECT ON DATABASE to this role, or use another user in database_url"),
    (pg.TooManyConnectionsError, "end other connections, or raise max_connections of PostgreSQL"),
    (pg.CannotConnectNowError, "try again in a moment"),
    (ssl.SSLCertVerificationError, "name the authority of its certificate: sslrootcert=FILE in database_url"),
    (FileNotFoundError, "start PostgreSQL, or check the host in database_url, which is the folder of its socket"),
    (socket.gaierror, "check the host in database_url"),
    (TimeoutError, "check the host and the port in database_url, and firewalls between"),
)
"""What to do about an error, the first that fits."""

_WITHOUT_TLS = (
    "it takes no TLS, or is no PostgreSQL: check the host and the port in database_url, turn on ssl in "
    "postgresql.conf, or leave sslmode out of database_url"
)


def unreachable(error: BaseException, url: str, *, is_of_user: bool) -> str:
    """Return the message. is_of_user: whether the setting database_url names the database, so that advice helps."""
    reason = _reason(error)
    advice = f"; {_advice(error)}" if is_of_user else ""
    return f"the database at {describe_hosts(url)} cannot be reached: {reason}{advice}"


def _is_refused(error: BaseException) -> bool:
    # For a name with two addresses, such as localhost, asyncio joins two errors into one OSError.
    return isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error)


def _reason(error: BaseException) -> str:
    # The driver's texts of these repeat the address, or are empty.
    if _is_refused(error):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return getattr(error, "strerror", None) or in_one_line(error) or type(error).__name__


def _advice(error: BaseException) -> str:
    if isinstance(error, ConnectionError) and "SSL" in str(error):
        return _WITHOUT_TLS
    if _is_refused(error):
        return "start PostgreSQL, or check the host and the port in database_url"
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "check the setting database_url")
