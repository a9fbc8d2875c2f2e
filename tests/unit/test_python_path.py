"""The setting python_path: the folders of modules that a user's resources import. No database, no socket."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from server.settings import Settings, StartError
from server.startup.declarations import extend_python_path
from server.startup.start import declarations

RESOURCES = """
import shop_of_a_test
from waterspout import TEXT, Attribute, Resource

RESOURCES = [Resource("thing", "/things", "things", attributes=(Attribute(shop_of_a_test.NAME, TEXT),))]
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """sys.path, which is restored after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return sys.path


def test_folders_are_appended_once(path: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        extend_python_path("one:~/two")
    assert path == [*before, f"{tmp_path}/one", f"{tmp_path}/two"]


@pytest.mark.parametrize(("folders", "named"), [("missing", "missing"), (":", ""), (".:a file", "a file")])
def test_a_path_that_is_not_a_folder_is_refused(
    folders: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(StartError, match=f"^python_path names '{named}', which is no folder$"):
        extend_python_path(folders)


def test_resources_import_from_these_folders(path: list[str], tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "shop_of_a_test.py").write_text("NAME = 'label'\n")
    (tmp_path / "things.py").write_text(RESOURCES)
    settings = msgspec.structs.replace(Settings(), resources=str(tmp_path / "things.py"))
    with pytest.raises(StartError, match="No module named 'shop_of_a_test'"):
        declarations(settings)
    (resource,) = declarations(msgspec.structs.replace(settings, python_path=str(packages))).catalog
    assert [attribute.name for attribute in resource.attributes] == ["label"]
    del sys.modules["shop_of_a_test"]


def test_the_docs_change_what_inspect_writes_from_a_file_beside_it(path: list[str], tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your-database.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    [written] = [block for block in blocks if block.startswith("CUSTOMER")]
    [own] = [block for block in blocks if "import inspected" in block]
    (tmp_path / "inspected.py").write_text(f"from waterspout import *\n{written}\nRESOURCES = [CUSTOMER, ORDER]\n")
    (tmp_path / "shop.py").write_text(own)
    customer, order = declarations(Settings(resources=str(tmp_path / "shop.py"))).catalog
    assert (customer.access, len(order.access)) == ((), 2)
    assert [attribute.name for attribute in order.attributes] == ["size", "total", "label"]
    del sys.modules["inspected"]
