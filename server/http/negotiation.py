"""Checks Accept and Content-Type for application/vnd.api+json with its `ext` and `profile`, and writes Vary.

Sources: JSON:API 1.1 "Content Negotiation"; RFC 9110, sections 8.3 and 12.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from tornado.httputil import HTTPHeaders

from querybuild.parse import ANSWER_AS, ANSWERS
from querybuild.query import ReadForm
from serializers import json_api
from serializers.json_api import MEDIA_TYPE
from serializers.lines import csv_lines, ndjson
from serializers.representation import Representation
from server.errors import NotAcceptable, UnsupportedMediaType

ATOMIC = "https://jsonapi.org/ext/atomic"
EXTENDED = f'{MEDIA_TYPE};ext="{ATOMIC}"'
"""The media type with the extension of atomic operations."""

_PARAMETER = re.compile(r';\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*))?\s*')
_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?")
_QUOTED_PAIR = re.compile(r"\\(.)")
# An unclosed quote runs to the end of the value: a search for its end from every position would be quadratic.
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++')

Parameters = dict[str, str]


class MediaType(msgspec.Struct, frozen=True, eq=False):
    """A media type of bodies and answers. extensions: the URIs that it may have as `ext`. representation: of the
    documents of reads. form: what reads are planned for. content_type: the header of answers, if it is not the name.
    ending: of the name of a file. aliases: other names that Accept may use. is_only_named: whether `*/*` does not mean
    it."""

    name: str
    extensions: frozenset[str] = frozenset()
    representation: Representation = json_api.JSON_API
    form: ReadForm = "document"
    content_type: str = ""
    ending: str = ""
    aliases: tuple[str, ...] = ()
    is_only_named: bool = False


JSON_API = MediaType(MEDIA_TYPE, aliases=("application/json",))
ATOMIC_OPERATIONS = MediaType(MEDIA_TYPE, frozenset({ATOMIC}))
CSV = MediaType(
    csv_lines.MEDIA_TYPE,
    representation=csv_lines.CSV,
    form="rows",
    content_type=f"{csv_lines.MEDIA_TYPE}; charset=utf-8; header=present",
    ending="csv",
    is_only_named=True,
)
NDJSON = MediaType(ndjson.MEDIA_TYPE, representation=ndjson.NDJSON, form="rows", ending="ndjson", is_only_named=True)
HTML = MediaType("text/html", form="page", content_type="text/html; charset=utf-8", is_only_named=True)
"""Pages for people. They are not documents: `server/handlers/pages/` makes them."""

BROWSED = (JSON_API, HTML)
LISTS = (JSON_API, CSV, NDJSON, HTML)
"""The media types of reads, and those of lists."""

_BY_ANSWER = dict(zip(ANSWERS, LISTS, strict=True))
_ASKED = re.compile(rf"(?:^|&){ANSWER_AS}=([a-z]+)(?:&|$)")

ANY = MediaType("*/*")

CACHED_HEADERS = 16
"""How many values of each header are cached: clients repeat the same ones, and parsing one takes up to 4 us. Refused
values are not cached. A value may have 64 KB, so each of the three caches holds at most 1 MB."""


def add_vary(headers: HTTPHeaders, name: str) -> None:
    """Add a request header to the Vary header of an answer, unless it has it (RFC 9110, 12.5.5)."""
    names = headers.get("Vary", "")
    if name not in names.split(", "):
        headers["Vary"] = f"{names}, {name}" if names else name


FORM = MediaType("application/x-www-form-urlencoded")
"""The media type of the body of a QUERY."""

FILE_FORM = MediaType("multipart/form-data", aliases=(FORM.name,))
"""The media type of forms that may have a file."""


@lru_cache(maxsize=CACHED_HEADERS)
def check_content_type(value: str | None, accepted: MediaType) -> frozenset[str]:
    """Return the extensions that a request with a JSON:API body applies. A form has none. Raises
    UnsupportedMediaType."""
    if accepted in (FORM, FILE_FORM):
        if (value or "").partition(";")[0].strip().lower() not in (accepted.name, *accepted.aliases):
            raise UnsupportedMediaType(f"The Content-Type must be {accepted.name}.", header="Content-Type")
        return frozenset()
    if not value:
        raise UnsupportedMediaType(f"A body needs a Content-Type: {MEDIA_TYPE}.", header="Content-Type")
    media_type, parameters = _parsed(value)
    if media_type == "application/json":
        return frozenset()
    if media_type != MEDIA_TYPE:
        raise UnsupportedMediaType(f"The Content-Type must be {MEDIA_TYPE}.", header="Content-Type")
    unknown = _unsupported_parameter(parameters, accepted.extensions)
    if unknown is not None:
        raise UnsupportedMediaType(f"The Content-Type has {unknown}.", header="Content-Type")
    return frozenset(parameters.get("ext", "").split())


def preferred_type(accept: Sequence[str] | None, query: str, answers: tuple[MediaType, ...]) -> MediaType:
    """Return the media type of an answer, out of those of a route. accept: the values of the header, None without it.
    `answerAs` in the query comes first. Raises NotAcceptable as `accepted_type` does."""
    asked = asked_type(query, answers) if ANSWER_AS in query else None
    return asked or (answers[0] if accept is None else accepted_type(", ".join(accept), answers))


@lru_cache(maxsize=CACHED_HEADERS)
def accepted_type(value: str, answers: tuple[MediaType, ...]) -> MediaType:
    """Return which of the media types of a route Accept prefers: the first one, if none is accepted or several are
    equal. Raises NotAcceptable if this is that of JSON:API, and Accept lists it only with parameters that this route
    does not support."""
    accepted = answers[0]
    if len(answers) > 1:
        elements = [_parsed(element) for element in _ELEMENT.findall(value)]
        names = {name for name, _ in elements}
        # Programs in Java send text/html by default, and no browser sends it without this.
        is_java = "image/gif" in names and "application/xhtml+xml" not in names
        accepted = max(
            answers, key=lambda media_type: 0.0 if media_type is HTML and is_java else _weight(media_type, elements)
        )
    if not accepted.is_only_named:
        _check_parameters(value, answers)
    return accepted


def asked_type(query: str, answers: tuple[MediaType, ...]) -> MediaType | None:
    """Return the media type that the parameter `answerAs` asks for. None without it, and if this route does not have
    it.

    >>> asked_type("sort=age&answerAs=csv", LISTS).name
    'text/csv'
    """
    match = _ASKED.search(query)
    wanted = None if match is None else _BY_ANSWER.get(match[1])
    return wanted if wanted in answers else None


def _weight(answered: MediaType, elements: list[tuple[str, Parameters]]) -> float:
    """Return the weight of a media type, by the elements of Accept that are most specific. 0 if there is none."""
    name = answered.name.partition(";")[0]
    general = () if answered.is_only_named else ((f"{name.partition('/')[0]}/*",), ("*/*",))
    for wanted in ((name, *answered.aliases), *general):
        weights = [_number(parameters.get("q", "1")) for media_type, parameters in elements if media_type in wanted]
        if weights:
            return max(weights)
    return 0.0


def _number(text: str) -> float:
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _check_parameters(value: str, answers: tuple[MediaType, ...]) -> None:
    if MEDIA_TYPE not in value.lower():
        return
    extensions = frozenset[str]().union(*(answer.extensions for answer in answers))
    problems = []
    for element in _ELEMENT.findall(value):
        media_type, parameters = _parsed(element)
        if media_type == MEDIA_TYPE:
            problem = _unsupported_parameter(_before_weight(parameters), extensions)
            if problem is None:
                return
            problems.append(problem)
    if problems:
        raise NotAcceptable(f"Every {MEDIA_TYPE} of Accept has {problems[0]}.", header="Accept")


def _parsed(value: str) -> tuple[str, Parameters]:
    media_type, _, _ = value.partition(";")
    return media_type.strip().lower(), dict(_parameters(value))


def _parameters(value: str) -> Iterator[tuple[str, str]]:
    for name, text in _PARAMETER.findall(value):
        yield name.lower(), _QUOTED_PAIR.sub(r"\1", text[1:-1]) if text.startswith('"') else text


def _before_weight(parameters: Parameters) -> Parameters:
    """Return the parameters of the media type. `q` and those after it belong to Accept."""
    kept: Parameters = {}
    for name, text in parameters.items():
        if name == "q":
            break
        kept[name] = text
    return kept


def _unsupported_parameter(parameters: Parameters, extensions: frozenset[str]) -> str | None:
    """Return the first parameter that this route does not support, in words, or None if there is none. Profiles are
    ignored."""
    for name, text in parameters.items():
        if name == "ext":
            unknown = [uri for uri in text.split() if uri not in extensions]
            if unknown:
                return f"an `ext` that this route does not have: {unknown[0][:100]}"
        elif name != "profile":
            return f"the parameter {name[:100]!r}, and JSON:API allows only `ext` and `profile`"
    return None
