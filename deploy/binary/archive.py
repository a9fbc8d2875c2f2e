"""The archive behind the program: what is put into it, and how it is put there.

In: folders of modules, shared libraries. Out: `Entries`, names to bytes, and a ZIP file at the end of another file.
It must not know: which folders these are, nor what a program needs to start.
"""

import os
import py_compile
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# What a server has no use for: a display, other programs' tests, what writes to the place that it is in.
UNUSED = {
    "test",
    "tests",
    "tkinter",
    "_tkinter",
    "turtle",
    "turtledemo",
    "idlelib",
    "ensurepip",
    "lib2to3",
    "pydoc_data",
}

Entries = dict[str, bytes]
Extensions = dict[str, tuple[str, list[str]]]

# What every machine with this C library has (and must have of its own: the parts of it belong together).
C_LIBRARY = (
    *("linux-vdso.", "ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libutil.", "libresolv."),
    # glibc itself loads it, so it is there.
    "libgcc_s.",
)
EXECUTABLE = 0o100755
READABLE = 0o100644
OLDEST = (1980, 1, 1, 0, 0, 0)


class Libraries:
    """The shared libraries that came along, as entry name and the file that it was."""

    def __init__(self) -> None:
        self.found: dict[str, Path] = {}

    def of(self, path: Path, entries: Entries) -> list[str]:
        """The entries of what this one needs, each after those that it needs itself."""
        needed = []
        for line in run("ldd", path).splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            if arrow and not name.startswith(C_LIBRARY):
                entry = f"_libraries/{name}"
                if entry not in self.found:
                    self.found[entry] = Path(rest.partition(" (")[0]).resolve(strict=True)
                    entries[entry] = stripped(self.found[entry])
                needed.append(entry)
        return needed[::-1]


def add_modules(entries: Entries, folder: Path, unused: Collection[str]) -> None:
    """Every module of the folder, compiled, but for those that are not used."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if is_used(parts, unused):
            add_module(entries, path, "/".join(parts))


def is_used(parts: Sequence[str], unused: Collection[str]) -> bool:
    """Whether a module is not in a folder, and not itself at the top, of a name that is `unused`. parts: of its path.
    `jinja2.tests` is no folder of tests."""
    return not {parts[0], *parts[:-1]} & {*unused, "__pycache__"} and not parts[0].startswith("config-")


def add_module(entries: Entries, path: Path, name: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pyc") as made:
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(path), made.name, f"{name}.py", doraise=True, invalidation_mode=unchecked)
        entries[f"{name}.pyc"] = Path(made.name).read_bytes()


def add_extensions(entries: Entries, folder: Path, libraries: Libraries, unused: Collection[str]) -> Extensions:
    """Every extension module of the folder and what it needs: name to entry and libraries."""
    found: Extensions = {}
    for path in sorted(folder.rglob("*.so")):
        parts = path.relative_to(folder).parts
        name = ".".join((*parts[:-1], path.name.partition(".")[0]))
        if is_used_extension(name, unused):
            entry = f"_extensions/{name}.so"
            entries[entry] = stripped(path)
            found[name] = entry, libraries.of(path, entries)
    return found


def is_used_extension(name: str, unused: Collection[str]) -> bool:
    """Whether an extension module is not `unused`, and none of Python's own, which test it or show how to write one."""
    first, *_ = parts = name.split(".")
    return not (
        {name, *parts[:-1]} & set(unused)
        or first.startswith(("_test", "_ctypes_test", "_xxtest", "xxlimited", "xxsubtype"))
    )


def stripped(path: Path) -> bytes:
    """The library without what only a debugger reads."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(path, folder)
        run("strip", "--strip-unneeded", copy)
        return Path(copy).read_bytes()


def append(program: Path, entries: Mapping[str, bytes], as_is: Collection[str], executable: Collection[str]) -> None:
    """Puts the entries behind the program; those `as_is` are not compressed. The same entries give the same bytes."""
    with program.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in sorted(entries.items()):
                about = zipfile.ZipInfo(name, OLDEST)
                about.external_attr = (EXECUTABLE if name in executable else READABLE) << 16
                method = zipfile.ZIP_STORED if name in as_is else zipfile.ZIP_DEFLATED
                archive.writestr(about, data, method, 9)


def run(*command: str | Path) -> str:
    """What the command prints; it fails with its own words."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout
