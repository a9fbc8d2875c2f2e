"""Defines the base of the handlers of forms: who may send one, how it is read, and searches for related resources."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from querybuild.declarations.resource import Attribute, Resource
from querybuild.errors import ApiError, release_frames, resource_not_found
from querybuild.planning.reads.labels import label_of
from querybuild.planning.rows import Row
from serializers.links import quote_segment, resource_path
from serializers.pages import forms
from serializers.pages.forms import SearchMatch
from serializers.pages.rendering import Crumb, Frame
from serializers.pages.values import label_text
from serializers.pages.view import title_of
from serializers.resource_objects import value_positions
from server.error_answers import answer
from server.execution.execute import ReadResult
from server.execution.writes.reply import Reply
from server.handlers.pages.frames import make_frame
from server.handlers.pages.sent_forms import check_own_page, read_fields
from server.handlers.reading import ReadingHandler
from server.handlers.writing import WritingHandler
from server.http.negotiation import FORM, HTML
from server.preparing.reads import PreparedRead, ReadShape
from server.routes import ON_LINKAGE, ON_ONE

MATCHES = 10
"""How many resources a search shows."""


class FormHandler(WritingHandler):
    """The base of the handlers of forms. Their bodies are read nowhere else."""

    has_pages = True
    answers_pages = True
    _sent: forms.Sent = MappingProxyType({})

    def check_request(self) -> None:
        """Check that the form is one of this server, and leave the rest to the checks of writes."""
        self.answer_type = HTML
        if self.request.method == "POST":
            check_own_page(self.request)
        # An Idempotency-Key is for programs.
        ReadingHandler.check_request(self)
        self.answer_type = HTML

    def read_form(self) -> forms.Sent:
        """Return the fields of the sent form. Raises RequestFault."""
        self._sent = read_fields(self.received.take(), self.request.headers.get("Content-Type", FORM.name))
        # What belongs to the form is not for the read that answers the write.
        self.request.query = ""
        return self._sent

    @property
    def base_url(self) -> str:
        """What links begin with."""
        return self.engine.base_url

    def own_path(self) -> str:
        """Return the URL of the resource that the form is about."""
        assert self.route is not None
        return resource_path(self.base_url, self.resource, quote_segment(self.route.id))

    def list_path(self) -> str:
        """Return the URL of the list of the resource, or of the start page if it has none."""
        return self.base_url + (self.resource.path if "list" in self.resource.methods else "/")

    def refusal(self, error: ApiError) -> tuple[list[dict[str, Any]], int]:
        """Record that a write was refused, and set the headers of the answer. Returns the error objects and the
        status."""
        self.record_failure(error)
        made = answer(error, self.request_id)
        release_frames(error)
        for name, value in made.headers:
            self.set_header(name, value)
        return json.loads(made.body)["errors"], made.status

    def refusal_details(self, error: ApiError) -> tuple[list[str], int]:
        """Do the same, and return only what the errors say, with the status."""
        refused, status = self.refusal(error)
        return [error_object["detail"] for error_object in refused], status

    def go(self, url: str) -> Reply:
        """Return the answer that leads to a page."""
        return Reply(303, None, location=url)

    def frame(self, title: str, *crumbs: Crumb) -> Frame:
        """Return what the form has around it."""
        first = Crumb(title_of(self.resource), self.list_path())
        return make_frame(self.engine, self.request, self.context.principal, title, (first, *crumbs))

    async def read_row(self) -> tuple[PreparedRead, ReadResult, Row]:
        """Read the resource of the path. Raises ResourceNotFound."""
        assert self.route is not None
        shape = ReadShape("resource", self.resource, accepts=ON_ONE, form="page")
        prepared, result = await self.read_besides(shape, "", door="write")
        if not result.rows[0]:
            raise resource_not_found(self.resource.type, self.route.id)
        return prepared, result, result.rows[0][0]

    async def matches(self, target: Resource, words: str) -> list[SearchMatch]:
        """Return resources whose label begins with the words, then others that have them in it."""
        label = searched_by(target)
        if label is None or not words:
            return []
        matches: dict[str, SearchMatch] = {}
        for operator, pattern in (("startswith", words), ("ilike", f"%{_escaped(words)}%")):
            if len(matches) < MATCHES:
                sort = label.name if label.is_sortable else "id"
                query = (
                    f"filter[{quote(label.name)}][{operator}]={quote(pattern)}&sort={quote(sort)}"
                    f"&page[size]={MATCHES}&page[total]=none&fields[{quote(target.type)}]={quote(label.name)}"
                )
                shape = ReadShape("collection", target, accepts=ON_LINKAGE)
                prepared, result = await self.read_besides(shape, query, door="write")
                position = value_positions(prepared.plan.node)[label]
                for row in result.rows[0]:
                    matches.setdefault(str(row[0]), SearchMatch(str(row[0]), label_text(row[position], row[0])))
        return list(matches.values())[:MATCHES]


def searched_by(target: Resource) -> Attribute | None:
    """Return the label by which people search for resources. None if they have none, or may not be listed."""
    label = label_of(target)
    return label if label is not None and label.is_filterable and "list" in target.methods else None


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
