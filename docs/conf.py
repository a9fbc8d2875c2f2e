"""Builds the documentation as a site, with Sphinx: `make docs-site` (docs/adr/0030-docs-site.md).

The pages are the same files that GitHub shows, so that relative links work in both. The folder of the sources is that
of the repository, because the README is the first page. Navigation is declared here, and not in the pages.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
FIRST = "README"

NAVIGATION = {
    "Begin": ["docs/tutorial", "docs/command-line", "docs/settings"],
    "Requests": [
        *(
            "docs/query-language",
            "docs/pages",
            "docs/browsing",
            "docs/writing",
            "docs/operations",
            "docs/versions",
            "docs/retrying",
            "docs/errors",
            "docs/openapi",
        ),
        *("docs/catalog", "docs/conformance"),
    ],
    "Your database": [
        *(
            "docs/your-database",
            "docs/resources",
            "docs/tables",
            "docs/functions",
            "docs/access",
            "docs/custom-code",
            "docs/migrations",
        ),
    ],
    "In production": [
        *("docs/running", "docs/deploy", "docs/proxies", "docs/observing", "docs/faults", "docs/threats"),
        *("docs/benchmark", "bench/figures/report"),
    ],
    "The project": ["docs/architecture", "CONTRIBUTING", "SECURITY", "CHANGELOG"],
}
"""The pages in the order of a reader, by heading. The decisions are below the architecture."""

_DECISIONS = [f"docs/adr/{page.stem}" for page in sorted((ROOT / "docs/adr").glob("0*.md"))]
BELOW = {"docs/architecture": ["docs/adr/README"], "docs/adr/README": _DECISIONS}
"""Pages below a page."""

project = "waterspout"
html_title = "waterspout"
extensions = ["myst_parser"]
root_doc = FIRST
include_patterns = [f"{page}.md" for page in (FIRST, *chain(*NAVIGATION.values(), *BELOW.values()))]
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
show_warning_types = True
# Anchors like those of GitHub, for all levels of headings that are linked to.
myst_heading_anchors = 4
# The requests of the examples have no version of HTTP, and the console has JSON: they are shown without colours.
suppress_warnings = ["misc.highlighting_failure"]


def _toctree(pages: list[str], caption: str = "") -> str:
    title = f":caption: {caption}\n" if caption else ""
    return "\n".join(["\n\n```{toctree}", f":hidden:\n{title}", *(f"/{page}" for page in pages), "```\n"])


def add_navigation(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the text of a page, as it is read."""
    if page == FIRST:
        source[0] += "".join(_toctree(pages, caption) for caption, pages in NAVIGATION.items())
    if page in BELOW:
        source[0] += _toctree(BELOW[page])


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Write the page that a folder is opened with: it leads to the first page."""
    if error is None:
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
            f'<meta http-equiv="refresh" content="0; url={FIRST}.html"><a href="{FIRST}.html">{project}</a>\n',
            encoding="utf-8",
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """As Sphinx wants it."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True}
