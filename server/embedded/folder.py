"""Prepares the data folder of the embedded PostgreSQL: ownership, permissions, the lock, the socket.

What comes in: the path of a data folder. What goes out: the folder, locked for the life of this process, and the
account that PostgreSQL runs under. It must not know: PostgreSQL's programs or settings.

    <data folder>/              0700, or 0711 if root made it and another account must pass through
        waterspout.json         the marker: the folder belongs to waterspout, and has this format
        waterspout.lock         locked (flock) by the live server; contains its process id
        cluster/                PostgreSQL's data directory, owned by the account, 0700
        socket/                 PostgreSQL's socket, owned by the account, 0700

When we run as root, everything but `cluster` and `socket` is owned by root. So the account can neither change its own
access rules nor redirect root's writes with a link.

    EmbeddedError               a text for a person: what is wrong, what to do
     |- SoftwareMissing         no PostgreSQL 18 programs
     |- FolderInUse             a live server holds the folder
     |- FolderRefused           not ours, somebody else's, or another format or major version
     |- FolderClosed            PostgreSQL's account cannot reach the folder
     `- StartFailed             PostgreSQL's own words are in the text
"""

import fcntl
import os
import platform
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import platformdirs

MARKER = "waterspout.json"
LOCK = "waterspout.lock"
CLUSTER = "cluster"
FORMAT = 1
SOCKET_NAME = ".s.PGSQL.5432"
# sun_path holds 108 bytes on Linux and 104 on macOS, the closing zero included.
SOCKET_PATH_BYTES = 103

# Used as root: an account of our name, else PostgreSQL's own, else one that every system has.
_ACCOUNTS = ("waterspout", "postgres", "_postgres", "nobody")
# Files that an empty folder may contain: left by an interrupted start, or created by the system.
_NO_CONTENT = {LOCK, MARKER + ".new", "lost+found", ".DS_Store"}
ELSEWHERE = "choose another folder with --data-dir, or give --database-url"


class EmbeddedError(RuntimeError):
    """Base class of the errors of the embedded PostgreSQL. The text is for a person."""


class SoftwareMissing(EmbeddedError):
    """The PostgreSQL programs are not installed."""


class FolderInUse(EmbeddedError):
    """Another live server holds the data folder."""


class FolderRefused(EmbeddedError):
    """The data folder was made by something else or by another version, or belongs to another user."""


class FolderClosed(EmbeddedError):
    """PostgreSQL's account cannot reach the data folder."""


class StartFailed(EmbeddedError):
    """A PostgreSQL program ended with an error."""


class Account(msgspec.Struct, frozen=True):
    """The OS user that PostgreSQL runs under. is_other: whether this process runs as another user."""

    name: str
    uid: int
    gid: int
    is_other: bool


class _Marker(msgspec.Struct, frozen=True):
    format: int
    postgresql: int


def default_data_dir() -> Path:
    """Return the data folder if none is given: the platform's user data folder, or a system folder as root.

    Other accounts cannot enter root's home, so it cannot hold a cluster.
    """
    if os.geteuid() != 0:
        return platformdirs.user_data_path("waterspout", appauthor=False)
    if platform.system() == "Darwin":
        return platformdirs.site_data_path("waterspout", appauthor=False)
    return Path("/var/lib/waterspout")


def os_user_name() -> str:
    """Return the name of the OS user of this process.

    Raises EmbeddedError if it has no name (a container with only a user id): initdb and peer authentication need one.
    """
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise EmbeddedError(
            f"user id {uid} has no name on this system and PostgreSQL refuses to run without one; "
            "add it to /etc/passwd, or give --database-url"
        ) from None


def account_for(data_dir: Path) -> Account:
    """Return the account that PostgreSQL runs under: the user of this process. As root it is the owner of the cluster,
    or a system user.

    The owner of the cluster comes first, so that a postgres account that is installed later changes nothing. Raises
    EmbeddedError if there is no such account.
    """
    if os.geteuid() != 0:
        return Account(os_user_name(), os.geteuid(), os.getegid(), is_other=False)
    cluster = data_dir / CLUSTER
    owner = cluster.stat().st_uid if cluster.is_dir() else 0
    for key in (owner,) if owner != 0 else _ACCOUNTS:
        with suppress(KeyError):
            account = pwd.getpwuid(key) if isinstance(key, int) else pwd.getpwnam(key)
            return Account(account.pw_name, account.pw_uid, account.pw_gid, is_other=True)
    raise EmbeddedError(
        "PostgreSQL does not run as root and there is no system user to run it as: neither "
        f"{f'user id {owner}, the owner of {cluster}' if owner != 0 else ' nor '.join(_ACCOUNTS)}; "
        "start as an ordinary user, or give --database-url"
    )


def first_closed_folder(path: Path, account: Account) -> Path | None:
    """Return the first folder on the way to `path` that `account` may not enter, by the permission bits, or None.

    Folders that do not exist yet are skipped. Access control lists are not read, so a folder that is only open because
    of them counts as closed.
    """
    if not account.is_other:
        return None
    for part in (*reversed(path.parents), path):
        if part.is_dir() and not _may_enter(part.stat(), account):
            return part
    return None


def _may_enter(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def check_folder(data_dir: Path, account: Account) -> None:
    """Check that the folder may be used. Nothing in it is changed. Raises FolderRefused, FolderClosed."""
    closed = first_closed_folder(data_dir, account)
    if closed is not None:
        raise FolderClosed(
            f"PostgreSQL does not run as root; it would run as {account.name}, who cannot enter {closed}; "
            f"open it (chmod o+x), start as an ordinary user, or {ELSEWHERE}"
        )
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise FolderRefused(f"{data_dir} is not a folder; {ELSEWHERE}")
    owner = data_dir.stat().st_uid
    if account.is_other and owner != 0:
        raise FolderRefused(f"{data_dir} belongs to user id {owner}, not to root; start as that user, or {ELSEWHERE}")
    _check_marker(data_dir)


def _check_marker(data_dir: Path) -> None:
    marker = data_dir / MARKER
    if not marker.exists():
        strangers = sorted({entry.name for entry in data_dir.iterdir()} - _NO_CONTENT)
        if strangers:
            raise FolderRefused(
                f"{data_dir} was not made by waterspout and is not empty (it holds {strangers[0]}); {ELSEWHERE}"
            )
        return
    try:
        known = msgspec.json.decode(marker.read_bytes(), type=_Marker)
    except msgspec.DecodeError as error:
        raise FolderRefused(f"{marker} is not a marker of ours ({error}); {ELSEWHERE}") from error
    if known.format != FORMAT:
        raise FolderRefused(
            f"{data_dir} has format {known.format}, this waterspout knows {FORMAT}; "
            f"use the version that made it, or {ELSEWHERE}"
        )


def make_folder(data_dir: Path, account: Account) -> None:
    """Make the data folder and its missing parents. Existing folders keep their permissions."""
    mode = 0o711 if account.is_other else 0o700
    missing = [part for part in (data_dir, *data_dir.parents) if not part.exists()]
    for part in reversed(missing):
        with suppress(FileExistsError):
            part.mkdir(mode)
            part.chmod(mode)


def make_private(folder: Path, account: Account) -> None:
    """Make `folder`, or reset it if it exists: mode 0700, owned by the account. Its parent must be ours."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if account.is_other:
        os.chown(folder, account.uid, account.gid)


def write_marker(data_dir: Path, major: int) -> None:
    """Write the marker file."""
    replace_text(data_dir / MARKER, msgspec.json.encode(_Marker(FORMAT, major)).decode() + "\n")


def replace_text(path: Path, text: str) -> None:
    """Write `text` to a file that PostgreSQL's account can read, atomically, even if the power fails."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o644)
    new.replace(path)


def sync_folder(folder: Path) -> None:
    """Wait until a rename inside `folder` is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def socket_folder(data_dir: Path, account: Account, cleanup: ExitStack) -> Path:
    """Make an empty private folder for the socket, in the data folder. If that path is too long for a socket, or has
    characters with a meaning in a DSN (such as `,` and `:`), make it in a temporary folder.

    The user's runtime folder is not used, because it is removed when the user logs out.
    """
    folder = data_dir / "socket"
    if not fits_socket(folder):
        folder = _temporary_folder(account)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
    make_private(folder, account)
    clear_socket(folder)
    return folder


def clear_socket(folder: Path) -> None:
    """Remove a socket and its lock file that a crash has left. Another process may have the process id in it by now."""
    for left in folder.iterdir():
        left.unlink()


def _temporary_folder(account: Account) -> Path:
    for parent in _temporary_parents():
        if fits_socket(parent / "waterspout-12345678") and first_closed_folder(parent, account) is None:
            return Path(tempfile.mkdtemp(prefix="waterspout-", dir=parent))
    raise FolderClosed(
        f"no folder for the socket: the data folder's path is too long for one, and so is, or is closed, "
        f"{tempfile.gettempdir()}; {ELSEWHERE}"
    )


def _temporary_parents() -> Iterable[Path]:
    return dict.fromkeys((Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()))


def fits_socket(folder: Path) -> bool:
    """Return whether a socket in `folder` has a path short enough for the system and plain enough for a DSN."""
    path = str(folder / SOCKET_NAME)
    is_plain = path.isascii() and all(character.isalnum() or character in "/._-+" for character in path)
    return is_plain and len(path) <= SOCKET_PATH_BYTES


_held: set[int] = set()


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


# A forked child would share the flock and keep it after its parent was killed.
os.register_at_fork(after_in_child=_close_in_child)


class FolderLock:
    """A lock on the data folder, held from construction until `release` or the end of this process.

    Neither forked nor executed children hold it. Raises FolderInUse, with the process id of the holder.
    """

    def __init__(self, data_dir: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(data_dir / LOCK, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise FolderInUse(
                f"{data_dir} is in use by another waterspout (process id {holder or 'unknown'}); "
                f"stop that one, or {ELSEWHERE}"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        _held.add(self._descriptor)

    def release(self) -> None:
        """Release the lock. The file stays: if it were removed, two servers could lock two files of the same name."""
        if self._descriptor in _held:
            _held.remove(self._descriptor)
            os.close(self._descriptor)
