"""Reads pages as a person sees them, for tests: a tree of elements, and the texts in it."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

from tests.http.conftest import Answer, Api

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
VOID = {"meta", "link", "input", "br", "img", "hr"}


class Element:
    """An element. name: of its tag."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name, self.attributes = name, attributes
        self.content: list[Element | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    @property
    def text(self) -> str:
        """All text below it, with single blanks."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for one in self.content:
            if isinstance(one, str):
                yield one
            else:
                yield from one._texts()

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Return the elements below it with this tag, and these values of attributes. `class_` is `class`."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            one
            for one in self._below()
            if tag in ("", one.name) and all(one.attributes.get(key) == value for key, value in wanted.items())
        ]

    def one(self, tag: str = "", **attributes: str) -> Element:
        [found] = self.all(tag, **attributes)
        return found

    def _below(self) -> Iterator[Element]:
        for one in self.content:
            if isinstance(one, Element):
                yield one
                yield from one._below()


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        found = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].content.append(found)
        if tag not in VOID:
            self._open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].content.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        opened = self._open.pop()
        assert opened.name == tag, (opened.name, tag)

    def handle_data(self, data: str) -> None:
        self._open[-1].content.append(data)


def parse(page: bytes) -> Element:
    """Return the tree of a page. Each element must be closed."""
    builder = _Builder()
    builder.feed(page.decode())
    builder.close()
    assert builder._open == [builder.root]
    return builder.root


async def browse(api: Api, path: str, *, status: int = 200, **headers: str) -> Element:
    """Open a page as a browser does."""
    answer = await get(api, path, **headers)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "text/html; charset=utf-8"), answer.body
    return parse(answer.body)


async def get(api: Api, path: str, accept: str = BROWSER, method: str = "GET", **headers: str) -> Answer:
    return await api.request(method, path, headers={"Accept": accept, **headers})


def table(page: Element) -> list[dict[str, str]]:
    """Return the rows of the table of a page, by the heads of its columns."""
    heads = [one.text for one in page.one("thead").all("th")]
    rows = [[one for one in row.content if isinstance(one, Element)] for row in page.one("tbody").all("tr")]
    return [dict(zip(heads, [cell.text for cell in cells], strict=True)) for cells in rows]
