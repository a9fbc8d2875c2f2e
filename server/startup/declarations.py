"""Loads the declarations of a user. What comes in: the setting `resources`, as `package.module:name` or
`/path/file.py[:name]`. What goes out: a Catalog, and the routes of the module.

A file is loaded by its path and gets a private module name, so that it shadows no other module, and no other module
shadows it. It may import the modules in its folder. The default name is `CATALOG`, or else `RESOURCES`. `ROUTES` and
`AUTHENTICATE` in the same module are optional.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import msgspec

from querybuild.declarations.catalog import Catalog, CatalogError
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Resource
from querybuild.errors import listed, nearest, quoted
from querybuild.planning.context import View
from querybuild.planning.rules import read_rules
from server.authentication.authenticator import Custom
from server.handlers.custom import CustomHandler
from server.schema.live_schema import LiveSchema
from server.settings import StartError
from server.startup.own_names import OWN_PACKAGES, check_imports

DEFAULT_NAMES = ("CATALOG", "RESOURCES")
BUILT_IN = "server.resources"
TAKEN_NAMES = OWN_PACKAGES | {"waterspout", "tests"}


class Declarations(msgspec.Struct, frozen=True, eq=False):
    """The catalog and the custom code. routes: patterns of whole paths, with their handlers. They are matched before
    the server's routes. authenticate: the function AUTHENTICATE. schema: what comparing the catalog with the tables
    found, if it was made of them."""

    catalog: Catalog
    routes: tuple[tuple[re.Pattern[str], type[CustomHandler]], ...] = ()
    authenticate: Custom | None = None
    schema: LiveSchema | None = None


def extend_python_path(folders: str) -> None:
    """Append the folders of the setting `python_path` to the module search path.

    They come last, so that no module in them replaces a module of the server. Raises StartError for a folder that does
    not exist, and for an empty name, which Python would read as the current folder.
    """
    for folder in folders.split(os.pathsep):
        path = Path(folder).expanduser().absolute()
        if not folder or not path.is_dir():
            raise StartError(f"python_path names {folder!r}, which is no folder")
        if str(path) not in sys.path:
            sys.path.append(str(path))


def load_declarations(resources: str) -> Declarations:
    """Load the declarations that the setting `resources` names. Raises StartError, which says what is wrong with the
    setting, the module or the declarations."""
    place, _, name = resources.partition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    declared = _named(module, name, place)
    try:
        catalog = declared if isinstance(declared, Catalog) else Catalog(_resources(declared, place))
        read_rules(View(catalog))
    except CatalogError as error:
        raise StartError(f"the resources of {place} cannot be served:\n{error}") from error
    routes = getattr(module, "ROUTES", ())
    if not isinstance(routes, list | tuple):
        raise StartError(f"expected ROUTES of {place} to be a list of pairs, not {routes!r}")
    authenticate: object = getattr(module, "AUTHENTICATE", None)
    if authenticate is not None and not inspect.iscoroutinefunction(authenticate):
        raise StartError(f"expected AUTHENTICATE of {place} to be an async function of the request")
    return Declarations(catalog, tuple([_route(route, place) for route in routes]), authenticate)


def _route(route: object, place: str) -> tuple[re.Pattern[str], type[CustomHandler]]:
    """Compile one of ROUTES: `(r"/reports/([0-9]+)", ReportHandler)`. Raises StartError."""
    expected = f"expected ROUTES of {place} to hold pairs of a pattern and a class made from waterspout.CustomHandler"
    if not (isinstance(route, list | tuple) and len(route) == 2):
        raise StartError(f"{expected}, not {route!r}")
    pattern, handler = route
    if not (isinstance(pattern, str) and isinstance(handler, type) and issubclass(handler, CustomHandler)):
        raise StartError(f"{expected}, not {route!r}")
    try:
        return re.compile(pattern), handler
    except re.error as error:
        raise StartError(f"the route {pattern} of {place} is no regular expression: {error}") from error


def check_file(resources: str) -> None:
    """Check that there is the file that the setting `resources` names, if it names one. Raises StartError."""
    place = resources.partition(":")[0]
    path = Path(place)
    if not place.endswith(".py"):
        return
    if path.stem in TAKEN_NAMES:
        raise StartError(f"{path} has the name of a package of the server: rename the file")
    if not path.is_file():
        near = nearest(path.name, [file.name for file in path.parent.glob("*.py")])
        raise StartError(f"there is no file {path} to take resources from.{near}")


def _load_file(path: Path) -> ModuleType:
    check_file(str(path))
    name = f"_waterspout_resources_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look the module up by its name.
    sys.modules[name] = module
    if (folder := str(path.absolute().parent)) not in sys.path:
        # It may import the modules beside it. They come after everything that is installed.
        sys.path.append(folder)
    try:
        with _loading(str(path), name):
            spec.loader.exec_module(module)
    finally:
        check_imports(Path(folder), path)
    return module


@contextmanager
def _loading(place: str, name: str) -> Iterator[None]:
    """Turn errors of loading a module into StartError, with the line in the module or in its package. name: the name of
    the module."""
    try:
        yield
    except CatalogError as error:
        raise StartError(f"the resources of {place} cannot be served{_line_of(error, name)}:\n{error}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise StartError(
                f"there is no module {error.name}: expected package.module:name, or the path of a .py file"
            ) from error
        advice = ""
        if isinstance(error, ModuleNotFoundError):
            advice = f": install {error.name}, put it beside the file, or name its folder with --python-path"
        line = _line_of(error, name)
        raise StartError(f"{place} cannot be loaded: {type(error).__name__}: {error}{line}{advice}") from error


def _line_of(error: BaseException, module: str) -> str:
    lines = [
        f" ({Path(frame.f_code.co_filename).name}, line {number})"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if f"{module}.".startswith(f"{frame.f_globals.get('__name__')}.")
    ]
    return lines[-1] if lines else ""


def _load_module(name: str) -> ModuleType:
    if name.partition(".")[0] in TAKEN_NAMES and name != BUILT_IN:
        raise StartError(f"{name} has the name of a package of the server: rename the module")
    if not all(part.isidentifier() for part in name.split(".")):
        raise StartError(f"{name} is neither a module's name nor the path of a .py file")
    if "" not in sys.path:
        # The folder that the server was started in, after all that is installed.
        sys.path.append("")
    try:
        with _loading(name, name):
            return importlib.import_module(name)
    finally:
        check_imports(Path.cwd(), None)


def _named(module: ModuleType, name: str, place: str) -> object:
    for wanted in (name,) if name else DEFAULT_NAMES:
        if hasattr(module, wanted):
            declared: object = getattr(module, wanted)
            return declared
    known = [known for known in vars(module) if not known.startswith("_")]
    wanted = name or " or ".join(DEFAULT_NAMES)
    raise StartError(f"{place} has no {wanted}.{nearest(name, known) if name else ''}")


def _resources(declared: object, place: str) -> tuple[Resource, ...]:
    if isinstance(declared, Resource):
        return (declared,)
    if isinstance(declared, list | tuple):
        wrong = [type(item).__name__ for item in declared if not isinstance(item, Resource | Function)]
        if not wrong:
            return tuple(declared)
        raise StartError(f"the resources of {place} hold {listed(wrong)}: expected Resource")
    raise StartError(
        f"the resources of {place} are {quoted(type(declared).__name__)}: expected a Catalog or a list of Resource"
    )
