"""The loading of a user's resources: what is accepted, and how errors are reported. No database, no socket."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from server.settings import StartError
from server.startup.declarations import load_declarations

HEAD = "from waterspout import TEXT, Attribute, Catalog, Resource\n\n"
THING = 'Resource("thing", "/things", "things")'
TWICE = f"CATALOG = Catalog([\n    {THING},\n    {THING},\n])\n"

FAULTS: list[tuple[str, str]] = [
    # the file from line 3 on; the message, with F for its name
    (
        'CATALOG = Resorce("thing")\n',
        "cannot be loaded: NameError: name 'Resorce' is not defined (F, line 3)",
    ),
    (
        'CATALOG = Resource("thing", "/things")\n',
        "cannot be loaded: TypeError: Missing required argument 'table' (F, line 3)",
    ),
    (
        "import no_such_module\n",
        "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module' (F, line 3): install "
        "no_such_module, put it beside the file, or name its folder with --python-path",
    ),
    ("def made():\n    raise ValueError('x')\n\nmade()\n", "cannot be loaded: ValueError: x (F, line 4)"),
    (
        "import uuid\nuuid.UUID('x')\n",
        "cannot be loaded: ValueError: badly formed hexadecimal UUID string (F, line 4)",
    ),
    ("raise SystemExit('no')\n", "cannot be loaded: SystemExit: no (F, line 3)"),
    ("CATALOG = = 1\n", "cannot be loaded: SyntaxError: invalid syntax (F, line 3)"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder of the server, which modules are imported from, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + text, encoding="utf-8")
    # The import system may have cached that the folder is empty.
    importlib.invalidate_caches()


def told(resources: str) -> str:
    with pytest.raises(StartError) as caught:
        load_declarations(resources)
    return str(caught.value)


@pytest.mark.parametrize("resources", ["shop.py", "./shop.py", "{}/shop.py", "shop", "of_a_test.shop"])
@pytest.mark.parametrize(("text", "fault"), FAULTS)
def test_a_fault_is_reported_with_its_line(folder: Path, resources: str, text: str, fault: str) -> None:
    """It does not matter how the file is named."""
    write(folder / ("of_a_test/shop.py" if "test" in resources else "shop.py"), text)
    place = resources.format(folder)
    shown = str(Path(place)) if place.endswith(".py") else place
    assert told(place) == f"{shown} {fault.replace('F,', 'shop.py,')}"


@pytest.mark.parametrize("resources", ["shop.py", "shop"])
def test_contradicting_resources_are_reported_with_the_line_of_the_catalog(folder: Path, resources: str) -> None:
    write(folder / "shop.py", TWICE)
    first, *others = told(resources).splitlines()
    assert first == f"the resources of {resources} cannot be served (shop.py, line 3):"
    assert others


@pytest.mark.parametrize("resources", ["shop.py", "shop"])
def test_resources_in_a_list_have_no_line(folder: Path, resources: str) -> None:
    write(folder / "shop.py", f"RESOURCES = [{THING}, {THING}]\n")
    assert told(resources).splitlines()[0] == f"the resources of {resources} cannot be served:"


@pytest.mark.parametrize("resources", ["shop.py", "shop"])
def test_a_fault_of_another_module_is_reported_with_the_line_that_imports_it(folder: Path, resources: str) -> None:
    write(folder / "prices_of_a_test.py", "\n\n\n1 / 0\n")
    write(folder / "shop.py", "import prices_of_a_test\n")
    assert told(resources) == f"{resources} cannot be loaded: ZeroDivisionError: division by zero (shop.py, line 3)"


def test_a_fault_of_the_package_is_reported_with_its_line(folder: Path) -> None:
    write(folder / "of_a_test" / "__init__.py", "1 / 0\n")
    write(folder / "of_a_test" / "shop.py", f"CATALOG = {THING}\n")
    expected = "of_a_test.shop cannot be loaded: ZeroDivisionError: division by zero (__init__.py, line 3)"
    assert told("of_a_test.shop") == expected


RULES = """from waterspout import *
WRONG = Allow(ANYONE, "read", rows={"name": "tilte", "op": "eq", "val": SUBJECT})
RESOURCES = [Resource("post", "/posts", "posts", attributes=(Attribute("title", TEXT),), access=(WRONG,))]
CATALOG = Catalog(RESOURCES)
"""


@pytest.mark.parametrize("name", ["CATALOG", "RESOURCES"])
def test_a_rule_that_does_not_fit_is_reported(folder: Path, name: str) -> None:
    place = folder / "ruled.py"
    write(place, RULES)
    assert told(f"{place}:{name}").splitlines() == [
        f"the resources of {place} cannot be served:",
        "resource “post”: rule 1 (anyone): `rows`: post has no attribute or relationship “tilte”. Did you mean "
        "“title”? There are: id, title.",
    ]


def test_a_missing_module(folder: Path) -> None:
    assert told("shop.py") == "there is no file shop.py to take resources from."
    write(folder / "shops.py", "")
    assert told(f"{folder}/shop.py").endswith("/shop.py to take resources from. Did you mean “shops.py”?")
    missing = "there is no module {}: expected package.module:name, or the path of a .py file"
    assert told("shop") == missing.format("shop")
    assert told("of_a_test.shop:CATALOG") == missing.format("of_a_test")
    assert told("json.CATALOG") == missing.format("json.CATALOG")
    assert told("my-shop") == "my-shop is neither a module's name nor the path of a .py file"
    write(folder / "shop.py", f"CATALOGUE = {THING}\n")
    assert told("shop.py") == "shop.py has no CATALOG or RESOURCES."
    assert told("shop:CATALOG") == "shop has no CATALOG. Did you mean “CATALOGUE”?"


@pytest.mark.parametrize("resources", ["server.py", "./waterspout.py", "migrations.shop", "tests"])
def test_a_name_of_a_package_of_the_server_is_refused(folder: Path, resources: str) -> None:
    assert " has the name of a package of the server: rename the " in told(resources)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("server.py", "import server"),
        ("server/models.py", "from server.models import NAMES"),
        ("querybuild/__init__.py", "from querybuild import NAMES"),
        ("migrations/env.py", "import migrations.env"),
    ],
)
def test_an_import_that_gets_the_package_of_the_server_is_refused(folder: Path, module: str, line: str) -> None:
    (folder / module).parent.mkdir(exist_ok=True)
    write(folder / module, "NAMES = []")
    name = module.partition("/")[0].removesuffix(".py")
    reason = f"imports {name}, and gets the server's package, not {folder / module.partition('/')[0]}: rename yours"
    write(folder / "shop.py", f"{line}\nCATALOG = {THING}\n")
    assert told(str(folder / "shop.py")) == f"{folder}/shop.py {reason}"
    # Also in a module that the resources import.
    write(folder / "helping.py", f"try:\n    {line}\nexcept ImportError:\n    pass\n")
    write(folder / "shop.py", f"import helping\nCATALOG = {THING}\n")
    assert told(str(folder / "shop.py")) == f"{folder}/helping.py {reason}"


def test_a_folder_of_sql_files_may_be_called_migrations(folder: Path) -> None:
    (folder / "migrations").mkdir()
    (folder / "migrations" / "0001_first.sql").touch()
    write(folder / "shop.py", f"import migrations\nCATALOG = {THING}\n")
    assert load_declarations(str(folder / "shop.py")).catalog


@pytest.mark.parametrize("resources", ["shop.py", "shop", "shop.py:MINE", "shop:MINE"])
def test_valid_declarations(folder: Path, resources: str) -> None:
    write(folder / "shop.py", f"CATALOG = MINE = {THING}\n")
    assert [resource.type for resource in load_declarations(resources).catalog] == ["thing"]
