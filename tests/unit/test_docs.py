"""The documentation is complete: each row of a table in the code has its entry, and there are no others.

tests/http/test_docs.py compares answers. WATERSPOUT_WRITE_DOCS=1 writes the list of settings again."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import waterspout
from querybuild.declarations.operators import all_names
from querybuild.declarations.types import ColumnType
from querybuild.filters import GROUPS, RELATION_OPERATORS
from querybuild.parse import FAMILIES
from querybuild.parsing.paging import PAGE_KEYS
from server.__main__ import main
from server.engine import ANYBODY, Engine
from server.error_answers import INTERNAL
from server.errors import ERRORS
from server.preparing.reads import ReadShape
from server.resources import built_in
from server.routes import ON_MANY
from server.schema.live_schema import LiveSchema
from server.settings import SETTINGS, Settings
from server.settings.groups import Setting
from server.tools.console.exit_codes import EXIT_CODES
from tests.variables import VARIABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ADRS = sorted((DOCS / "adr").glob("0*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "bench/figures/report.md"])

CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
CODE_SPAN = re.compile(r"(`+).+?\1", re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def headings(page: Path) -> list[str]:
    return HEADING.findall(CODE_BLOCK.sub("", text_of(page)))


def section(page: Path, title: str) -> str:
    """Return the text from the heading to the next one of the same or a higher level."""
    text = text_of(page)
    begin = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert begin, f"{page.name} has no section {title!r}"
    end = re.compile(rf"^#{{1,{len(begin[1])}}} ", re.MULTILINE).search(text, begin.end())
    return text[begin.end() : end.start() if end else None].removeprefix("\n")


def names_in_headings(text: str) -> list[str]:
    return [
        name for heading in re.findall(r"^### (.*)$", text, re.MULTILINE) for name in re.findall(r"`(.+?)`", heading)
    ]


# settings


def settings_text() -> str:
    """Return the list of settings in docs/settings.md, up to the end of the page."""
    parts, group = [], ""
    for setting in SETTINGS:
        if setting.group != group:
            group = setting.group
            parts.append(f"## {group}")
        parts.append(f"### `{setting.name}`")
        parts.append(setting.description)
        restart = " · takes a restart" if setting.takes_restart else ""
        parts.append(f"{flags(setting)} · `{setting.variable}` · {setting.expected} · {default_of(setting)}{restart}")
    return "\n\n".join(parts) + "\n"


def flags(setting: Setting) -> str:
    if setting.is_boolean:
        return f"`{setting.flag}`, `--no-{setting.flag.removeprefix('--')}`"
    return f"`{setting.flag} {setting.metavar}`"


def default_of(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return "not set by default"
    shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"default `{shown}`"


def test_settings() -> None:
    page = DOCS / "settings.md"
    prose, _, listed = text_of(page).partition("## Listening\n")
    if VARIABLES.get("WATERSPOUT_WRITE_DOCS"):
        page.write_text(prose + settings_text(), encoding="utf-8")
        return
    assert "## Listening\n" + listed == settings_text()


# the command line

CODES = "| code | meaning |\n| --- | --- |\n"


def test_exit_codes() -> None:
    page = DOCS / "command-line.md"
    text = section(page, "Exit codes")
    table = CODES + "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    if VARIABLES.get("WATERSPOUT_WRITE_DOCS"):
        page.write_text(text_of(page).replace(text, f"\n{table}\n"), encoding="utf-8")
        return
    assert text == f"\n{table}\n"


def test_commands() -> None:
    rows = re.findall(r"^\| `waterspout ([a-z]+)` \|", text_of(DOCS / "command-line.md"), re.MULTILINE)
    assert rows == list(main.commands)


# errors


def test_error_codes() -> None:
    rows = {row.code: row for row in (*ERRORS.values(), INTERNAL)}
    page = DOCS / "errors.md"
    assert sorted(names_in_headings(text_of(page))) == sorted(rows)
    for row in rows.values():
        assert section(page, f"`{row.code}`").startswith(f"\n{row.status} · {row.title}\n")


# the query language


def test_operators() -> None:
    page = DOCS / "query-language.md"
    operators = section(page, "Operators")
    assert sorted(names_in_headings(operators)) == sorted(all_names())
    assert {"any", "has"} == set(RELATION_OPERATORS)
    for name in all_names():
        assert f'"op":"{name}"' in operators, f"no example of {name}"


def test_groups() -> None:
    groups = section(DOCS / "query-language.md", "Groups")
    assert sorted(names_in_headings(groups)) == sorted(GROUPS)
    for name in GROUPS:
        assert f'{{"{name}":' in groups, f"no example of {name}"


def test_page_parameters() -> None:
    pages = section(DOCS / "query-language.md", "Pages")
    assert names_in_headings(pages) == [f"page[{key}]" for key in PAGE_KEYS]
    for key in PAGE_KEYS:
        assert re.search(rf"^ .*page\[{key}\]=", pages, re.MULTILINE), f"no example of page[{key}]"


def test_parameter_families() -> None:
    rows = re.findall(r"^\| \[`([a-zA-Z]+)", text_of(DOCS / "query-language.md"), re.MULTILINE)
    assert sorted(rows) == sorted(FAMILIES)


# declarations


def test_attribute_types() -> None:
    types_of_docs = section(DOCS / "resources.md", "Attribute types")
    rows = re.findall(r"^\| `([A-Z_\d]+|array\(TEXT\)|enum\()", types_of_docs, re.MULTILINE)
    types = [name for name in waterspout.__all__ if isinstance(getattr(waterspout, name), ColumnType)]
    assert sorted(rows) == sorted([*types, "array(TEXT)", "enum("])


@pytest.mark.parametrize("kind", ["Resource", "Id", "Attribute", "ToOne", "ToMany", "Link", "Operator", "Function"])
def test_vocabulary(kind: str) -> None:
    page = "functions.md" if kind == "Function" else "resources.md"
    members = section(DOCS / page, f"`{kind}`").partition("\n### ")[0]
    rows = re.findall(r"^\| `([a-z_]+)`", members, re.MULTILINE)
    assert rows == list(getattr(waterspout, kind).__struct_fields__)


def test_public_names() -> None:
    pages = text_of(DOCS / "resources.md") + text_of(DOCS / "custom-code.md")
    unnamed = [name for name in waterspout.__all__ if not re.search(rf"\b{name}\b", pages)]
    assert unnamed == []


# the architecture


def test_statements_of_the_walkthrough() -> None:
    page = text_of(DOCS / "architecture.md")
    target, statements = re.findall(r"^```(?:http\nGET |sql\n)(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    path, query = re.sub(r"\n +", "", target).split("?")
    engine = Engine(Settings(), built_in(), LiveSchema())
    read = engine.reads.prepare(ReadShape("collection", engine.catalog.by_path[path], accepts=ON_MANY), query, ANYBODY)
    compiled = read.ready.statements
    branches = [branch.sql for branch in compiled.branches if branch is not None]
    assert squeezed(statements) == squeezed(";".join([compiled.primary.sql, *branches, ""]))


def squeezed(sql: str) -> str:
    return re.sub(r"\s+", "", sql)


# pages and decisions


def code_lines(name: str) -> int:
    path = ROOT / name
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return sum(file.read_text().count("\n") for file in files)


def sizes() -> Iterator[tuple[str, int, list[str]]]:
    """(decision, lines, files and folders), for each number of lines that a decision says we maintain."""
    size = re.compile(r"([\d,]+)\s+lines\b[^:`]*:((?:\s*`[^`]+/[^`]*`,?)+)")
    for page in ADRS:
        for lines, names in size.findall(text_of(page)):
            yield page.name, int(lines.replace(",", "")), re.findall("`(.*?)`", names)


def test_decisions_for_code_of_our_own_say_how_much_it_is() -> None:
    expected = {"0001", "0006", "0015", "0016", "0017", "0018", "0019", "0023", "0024"}
    assert {page[:4] for page, _, _ in sizes()} >= expected


@pytest.mark.parametrize(("page", "lines", "names"), sizes())
def test_the_size_of_our_own_code_is_about_what_a_decision_says(page: str, lines: int, names: list[str]) -> None:
    assert lines == pytest.approx(sum(map(code_lines, names)), rel=0.1, abs=30)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as common renderers of Markdown create it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        # A code span may be the text of a link, but has none.
        for found in LINK.findall(CODE_SPAN.sub("`", CODE_BLOCK.sub("", text_of(page)))):
            target = "".join(found)
            if not re.match(r"https?://|mailto:", target):
                yield page, target


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(map(slug, headings(page)))


LINKS = list(links())


def has_target(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.exists() and (not anchor or anchor in anchors(found))


def test_links() -> None:
    assert not [f"{page.name}: {target}" for page, target in LINKS if not has_target(page, target)]


def test_the_site_has_every_page_once() -> None:
    """In its navigation (docs/conf.py): make docs-site fails otherwise."""
    site = runpy.run_path(str(DOCS / "conf.py"))
    pages = [site["FIRST"], *chain(*site["NAVIGATION"].values(), *site["BELOW"].values())]
    assert sorted(f"{page}.md" for page in pages) == sorted(str(page.relative_to(ROOT)) for page in PAGES)


def test_every_page_is_linked_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = [(page.parent / target.partition("#")[0]).resolve() for found, target in LINKS if found == page]
            waiting += [target for target in targets if target.suffix == ".md"]
    assert [page.name for page in PAGES if page not in reached] == []


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.name[:4]) for page in ADRS] == list(range(1, len(ADRS) + 1))


def test_decisions_have_their_parts() -> None:
    for page in ADRS:
        title, *parts = headings(page)
        assert title.startswith(f"{int(page.name[:4])}. "), page
        assert {"Context", "Decision", "Cost"} <= set(parts), page


# threats

TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_the_tests_of_the_threats_exist() -> None:
    found = TEST.findall(text_of(DOCS / "threats.md"))
    assert found
    for path, name in found:
        text = text_of(ROOT / path)
        assert not name or f"def {name}(" in text, (path, name)
