"""Answers forms: to create, edit and delete a resource, and to add and remove links. A form becomes the document that a
program would send, and is written as this is: rules, hooks, checks and versions hold without a line of their own here.
What comes in: a form. What goes out: the page of what was written, or the form again with what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError, release_frames, resource_not_found
from querybuild.planning.context import check_action, check_method
from querybuild.planning.reads.labels import label_of
from querybuild.planning.rows import Row
from querybuild.query import Change, Identifier, LinkageChange, LinkMode, Owner
from querybuild.query import Match as VersionMatch
from serializers.decode import decode_resource_document, with_id
from serializers.links import quote_segment, resource_path
from serializers.pages import forms
from serializers.pages.forms import FormField, LinkField, Match
from serializers.pages.rendering import Crumb, Frame, render
from serializers.pages.values import label_text
from serializers.pages.view import title_of
from serializers.pointers import tokens
from serializers.resource_objects import value_positions
from server.errors import ErrorAnswer, ForeignOrigin, PreconditionFailed, RequestFault, answer
from server.execution.arguments import arguments_of
from server.execution.execute import ReadResult, execute_read
from server.execution.versions import shown_version
from server.execution.writes.answers import Nothing
from server.execution.writes.reply import Reply
from server.handlers.auditing import Target
from server.handlers.pages.answering import finish_page
from server.handlers.pages.reads import docs_url
from server.handlers.reading import ReadingHandler
from server.handlers.writing import AnsweredWrite, WritingHandler
from server.http.allowed_hosts import own_origin
from server.http.negotiation import HTML
from server.preparing.reads import PreparedRead, ReadShape
from server.routes import ON_LINKAGE, ON_ONE

MATCHES = 10
"""How many resources a search shows."""

MAX_FIELDS = 10_000
"""How many fields a form has at most."""


class FormHandler(WritingHandler):
    """The base of the handlers of forms. Their bodies are read nowhere else."""

    has_pages = True
    answers_pages = True
    _sent: forms.Sent = MappingProxyType({})

    def check_request(self) -> None:
        """Check that the form is one of this server, and leave the rest to the checks of writes."""
        self.answer_type = HTML
        if self.request.method == "POST":
            self._check_origin()
        # An Idempotency-Key is for programs.
        ReadingHandler.check_request(self)
        self.answer_type = HTML

    def _check_origin(self) -> None:
        """Raises ForeignOrigin, unless a page of this server has sent the form. Browsers send where it comes from."""
        headers = self.request.headers
        site = headers.get("Sec-Fetch-Site")
        if site is None:
            origin = headers.get("Origin")
            is_own = origin is not None and origin.lower() == own_origin(self.request)
        else:
            is_own = site == "same-origin"
        if not is_own:
            raise ForeignOrigin("Only the pages of this server may send forms.", header="Origin")

    def read_form(self) -> forms.Sent:
        """Return the fields of the sent form. Raises RequestFault."""
        try:
            pairs = parse_qsl(
                self.received.take().decode(), keep_blank_values=True, max_num_fields=5000, errors="strict"
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise RequestFault(f"The form cannot be read: {error}.") from error
        self._sent = dict(pairs)
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

    def go(self, url: str) -> Reply:
        """Return the answer that leads to a page."""
        return Reply(303, None, location=url)

    def frame(self, title: str, *crumbs: Crumb) -> Frame:
        """Return what the form has around it."""
        first = Crumb(title_of(self.resource), self.list_path())
        who = self.context.principal.subject
        return Frame(
            base_url=self.base_url,
            title=title,
            crumbs=(first, *crumbs),
            docs_url=docs_url(self.engine),
            who=who,
        )

    async def read_row(self) -> tuple[PreparedRead, ReadResult, Row]:
        """Read the resource of the path. Raises ResourceNotFound."""
        assert self.route is not None
        shape = ReadShape("resource", self.resource, accepts=ON_ONE, form="page")
        prepared = self.engine.reads.prepare(shape, "", self.context)
        sent = arguments_of(prepared, self.context, self.path_id(self.resource))
        found = await self.cancel_scope.run(execute_read(self.reading_database(), prepared, sent, self.engine))
        if not found.rows[0]:
            raise resource_not_found(self.resource.type, self.route.id)
        return prepared, found, found.rows[0][0]

    def reading_database(self) -> Any:
        """Return the connections for reads of the principal."""
        return self.database.acting_for(self.context.principal, "write")

    async def matches(self, target: Resource, words: str) -> list[Match]:
        """Return resources whose label begins with the words, then others that have them in it."""
        label = label_of(target)
        if label is None or not label.is_filterable or not words:
            return []
        found: dict[str, Match] = {}
        for operator, pattern in (("startswith", words), ("ilike", f"%{_escaped(words)}%")):
            if len(found) < MATCHES:
                sort = label.name if label.is_sortable else "id"
                query = (
                    f"filter[{quote(label.name)}][{operator}]={quote(pattern)}&sort={quote(sort)}"
                    f"&page[size]={MATCHES}&page[total]=none&fields[{quote(target.type)}]={quote(label.name)}"
                )
                shape = ReadShape("collection", target, accepts=ON_LINKAGE)
                prepared = self.engine.reads.prepare(shape, query, self.context)
                sent = arguments_of(prepared, self.context, None)
                work = execute_read(self.reading_database(), prepared, sent, self.engine)
                result = await self.cancel_scope.run(work)
                position = value_positions(prepared.plan.node)[label]
                for row in result.rows[0]:
                    found.setdefault(str(row[0]), Match(str(row[0]), label_text(row[position], row[0])))
        return list(found.values())[:MATCHES]


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


class ResourceForm(FormHandler):
    """The base of the forms to create and to edit a resource."""

    on_create: bool

    def fields(self) -> tuple[list[FormField], list[LinkField]]:
        """Return the fields, without values."""
        read_only = self.context.access.read_only.get(self.resource.type, frozenset())
        links = forms.link_fields(self.resource, read_only, on_create=self.on_create)
        for link in links:
            target = self.catalog.by_type[link.target]
            label = label_of(target)
            if label is not None and label.is_filterable and "list" in target.methods:
                link.list_url, link.by = self.base_url + target.path, label.name
        return forms.attribute_fields(self.resource, read_only, on_create=self.on_create), links

    def sent_fields(self) -> tuple[list[FormField], list[LinkField]]:
        """Return the fields as the form has sent them."""
        fields, links = self.fields()
        sent = self._sent
        return [forms.with_sent(one, sent) for one in fields], [forms.link_with_sent(one, sent) for one in links]

    async def submit(self) -> None:
        """Write what was sent. If it is refused, send the form again, with everything that was typed."""
        sent = self.read_form()
        if (name := sent.get(forms.FIND)) is not None:
            fields, links = self.sent_fields()
            for link in links:
                if link.name == name:
                    link.matches = await self.matches(self.catalog.by_type[link.target], link.words)
            self.show(fields, links)
            return
        try:
            await self.write_sent()
        except ApiError as error:
            await self._show_again(error)

    async def write_sent(self) -> None:
        """Write what was sent."""
        raise NotImplementedError

    async def _show_again(self, error: ApiError) -> None:
        self.record_failure(error)
        made = answer(error, self.request_id)
        fields, links = self.sent_fields()
        by_name: dict[str, FormField | LinkField] = {one.name: one for one in fields}
        by_name |= {one.name: one for one in links}
        others = []
        for one in json.loads(made.body)["errors"]:
            names = tokens(one.get("source", {}).get("pointer", ""))
            field = by_name.get(names[2]) if len(names) > 2 else None
            if field is None:
                others.append(one["detail"])
            else:
                field.errors.append(one["detail"])
        version = None
        if isinstance(error, PreconditionFailed):
            fields, version = await self._with_current(fields)
        release_frames(error)
        for name, value in made.headers:
            self.set_header(name, value)
        self.show(fields, links, others, made.status, version)

    async def _with_current(self, fields: list[FormField]) -> tuple[list[FormField], str | None]:
        """Return the fields with what they are now, and the version that the row has now."""
        prepared, found, row = await self.read_row()
        version = shown_version(prepared, found)
        return list(forms.changed_meanwhile(fields, _values(prepared, row))), version

    def show(
        self,
        fields: list[FormField],
        links: list[LinkField],
        errors: Sequence[str] = (),
        status: int = 200,
        version: str | None = None,
    ) -> None:
        """Send the form. version: of the row, None for the one that the form has sent."""
        raise NotImplementedError

    def send_form(
        self,
        title: str,
        crumb: Crumb,
        fields: list[FormField],
        links: list[LinkField],
        errors: Sequence[str],
        status: int,
        **values: Any,
    ) -> None:
        """Send a form as a page."""
        page = render(
            "form.html",
            self.frame(title, *([crumb] if self.on_create else [crumb, Crumb("Edit")])),
            heading=title,
            fields=fields,
            links=links,
            errors=errors,
            has_errors=bool(errors) or any(one.errors for one in fields) or any(one.errors for one in links),
            prefix=forms,
            is_lost=status == 412,
            back=self.list_path() if self.on_create else self.own_path(),
            **values,
        )
        finish_page(self, page, status)


class CreateFormHandler(ResourceForm):
    """The form to create a resource. With `owner`, it is created in a to-many of another resource."""

    on_create = True

    async def get(self) -> None:
        self._check()
        fields, links = self.fields()
        self._sent = {"owner": self.get_query_argument("owner", "")}
        self.show(fields, links)

    async def post(self) -> None:
        await self.submit()

    def _check(self) -> None:
        check_method(self.resource, "create")
        check_action(self.resource, "create", self.context)

    async def write_sent(self) -> None:
        check_method(self.resource, "create")
        await self.answer_create(self.resource, self._parse)

    def _parse(self, errors: list[ApiError]) -> Change | None:
        fields, links = self.sent_fields()
        document = forms.document_of(self.resource, fields, links, None, errors)
        if client_id := self._sent.get("id", "").strip():
            found = json.loads(document)
            found["data"]["id"] = client_id
            document = msgspec.json.encode(found)
        asked = self.asked("create")
        if owner := self._owner():
            asked = msgspec.structs.replace(asked, owner=owner)
        return decode_resource_document(document, asked, errors, self.engine.limits)

    def _owner(self) -> Owner | None:
        """Return the resource in whose to-many the new one is created: `/groups/1/users`."""
        path = self._sent.get("owner", "")
        if not path:
            return None
        own, _, name = path.rpartition("/")
        collection, _, row_id = own.rpartition("/")
        resource = self.catalog.by_path.get(collection)
        relationship = None if resource is None else resource.relationship(unquote(name))
        if resource is None or relationship is None or not relationship.is_to_many:
            raise RequestFault("The form names no relationship to create it in.")
        return Owner(resource.type, unquote(row_id), relationship.name)

    def _reply_created(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        row_id, result = written
        if result is None or "detail" not in self.resource.methods:
            return self.go(self.list_path())
        return self.go(resource_path(self.base_url, self.resource, quote_segment(str(row_id))))

    def show(
        self,
        fields: list[FormField],
        links: list[LinkField],
        errors: Sequence[str] = (),
        status: int = 200,
        version: str | None = None,
    ) -> None:
        title = f"New {self.resource.type}"
        self.send_form(
            *(title, Crumb("New"), fields, links, errors, status),
            version="",
            owner=self._sent.get("owner", ""),
            takes_id=self.resource.client_ids,
            typed_id=self._sent.get("id", ""),
        )


class EditFormHandler(ResourceForm):
    """The form to edit a resource."""

    on_create = False

    def targets(self) -> list[Target]:
        assert self.route is not None
        return [Target("update", self.resource.type, self.route.id)]

    async def get(self) -> None:
        check_method(self.resource, "update")
        check_action(self.resource, "update", self.context)
        prepared, found, row = await self.read_row()
        values = _values(prepared, row)
        fields, links = self.fields()
        shown = [forms.with_text(one, values[one.name]) if one.name in values else one for one in fields]
        view = prepared.ready.encoders.view
        related = {one.name: one.links for one in view.related(found.rows)}
        for link in links:
            ids = view.ids_of(found.rows, link.name)
            link.id = link.shown = ids[0] if ids else ""
            link.title = related[link.name][0].label if ids and related.get(link.name) else ""
        self.show(shown, links, version=shown_version(prepared, found) or "")

    async def post(self) -> None:
        check_method(self.resource, "update")
        await self.submit()

    async def write_sent(self) -> None:
        if forms.VERSION not in self._sent:
            await self._check_shown()
        plan = partial(self.plan_read_back, self.resource)
        await self.answer_write(self._parse, plan, self.execute_write, self._reply_updated)

    def _parse(self, errors: list[ApiError]) -> Change | None:
        assert self.route is not None
        self.path_id(self.resource)
        fields, links = self.sent_fields()
        document = forms.document_of(self.resource, fields, links, self.route.id, errors)
        version = self._sent.get(forms.VERSION, "")
        match = VersionMatch(frozenset({version})) if version else None
        asked = msgspec.structs.replace(self.asked("update", self.route.id), match=match)
        change = decode_resource_document(document, asked, errors, self.engine.limits)
        return None if change is None else with_id(change, self.route.id, errors)

    async def _check_shown(self) -> None:
        """Check that a resource without versions is as it was shown. Raises PreconditionFailed."""
        prepared, _, row = await self.read_row()
        fields, _ = self.sent_fields()
        if any(one.now is not None for one in forms.changed_meanwhile(fields, _values(prepared, row))):
            raise PreconditionFailed("It has changed since it was shown.", header="If-Match")

    def _reply_updated(self, *_: object) -> Reply:
        return self.go(self.own_path() if "detail" in self.resource.methods else self.list_path())

    def show(
        self,
        fields: list[FormField],
        links: list[LinkField],
        errors: Sequence[str] = (),
        status: int = 200,
        version: str | None = None,
    ) -> None:
        assert self.route is not None
        title = f"Edit {self.resource.type} {self.route.id}"
        self.send_form(
            *(title, Crumb(self.route.id, self.own_path()), fields, links, errors, status),
            version=self._sent.get(forms.VERSION, "") if version is None else version,
            owner="",
            takes_id=False,
            typed_id="",
        )


def _values(prepared: PreparedRead, row: Row) -> dict[str, Any]:
    """Return the values that a row shows, by their attributes."""
    node = prepared.plan.node
    positions = value_positions(node)
    return {
        one.name: row[positions[one]] if one.type.shown is None else one.type.shown(row[positions[one]])
        for one in node.attributes
    }


class DeleteFormHandler(FormHandler):
    """Asks whether to delete a resource, and deletes it."""

    def targets(self) -> list[Target]:
        assert self.route is not None
        return [Target("delete", self.resource.type, self.route.id)]

    async def get(self) -> None:
        check_method(self.resource, "delete")
        check_action(self.resource, "delete", self.context)
        await self._ask()

    async def _ask(self, errors: Sequence[str] = (), status: int = 200) -> None:
        assert self.route is not None
        prepared, found, row = await self.read_row()
        heading = prepared.ready.encoders.view.heading(row)
        page = render(
            "delete.html",
            self.frame(f"Delete {heading}", Crumb(heading, self.own_path()), Crumb("Delete")),
            heading=heading,
            kind=self.resource.type,
            row_id=self.route.id,
            version=shown_version(prepared, found) or "",
            errors=errors,
            back=self.own_path(),
        )
        finish_page(self, page, status)

    async def post(self) -> None:
        check_method(self.resource, "delete")
        self.read_form()
        try:
            plan = partial(self.plan_write, self.resource)
            await self.answer_write(self._parse, plan, self.execute_unread, lambda *_: self.go(self.list_path()))
        except PreconditionFailed as error:
            self.record_failure(error)
            await self._ask(["It has changed since this page was shown. Look at it before you delete it."], 412)

    def _parse(self, _: list[ApiError]) -> Change:
        assert self.route is not None
        self.path_id(self.resource)
        version = self._sent.get(forms.VERSION, "")
        match = VersionMatch(frozenset({version})) if version else None
        return msgspec.structs.replace(self.asked("delete", self.route.id), match=match)


class LinksFormHandler(FormHandler):
    """Adds and removes links of a to-many."""

    def targets(self) -> list[Target]:
        assert self.route is not None
        return [Target("update", self.resource.type, self.route.id, self.relationship.name)]

    async def get(self) -> None:
        words = self.get_query_argument("words", "")
        await self._show(words, await self.matches(self.catalog.target(self.relationship), words))

    async def _show(self, words: str, matches: list[Match], errors: Sequence[str] = (), status: int = 200) -> None:
        prepared, found, row = await self.read_row()
        view, name = prepared.ready.encoders.view, self.relationship.name
        related = {one.name: one for one in view.related(found.rows)}[name]
        ids = view.ids_of(found.rows, name)
        methods = self.catalog.linkage_methods(self.resource, self.relationship)
        page = render(
            "links.html",
            self.frame(f"{name} of {view.heading(row)}", Crumb(view.heading(row), self.own_path()), Crumb(name)),
            heading=f"{name} of {view.heading(row)}",
            related=related,
            rows=list(zip(ids, related.links, strict=True)),
            may_add="add" in methods,
            may_remove="remove" in methods,
            words=words,
            matches=matches,
            errors=errors,
            back=self.own_path(),
        )
        finish_page(self, page, status)

    async def post(self) -> None:
        sent = self.read_form()
        mode: LinkMode = "remove" if "remove" in sent else "add"
        row_id = sent.get(mode, "").strip()
        try:
            parse = partial(self._parse, mode, row_id)
            plan = partial(self.plan_write, self.resource)
            await self.answer_write(parse, plan, self._write_link, lambda *_: self.go(self._own_form()))
        except ApiError as error:
            self.record_failure(error)
            made: ErrorAnswer = answer(error, self.request_id)
            release_frames(error)
            await self._show("", [], [one["detail"] for one in json.loads(made.body)["errors"]], made.status)

    def _own_form(self) -> str:
        assert self.route is not None
        return self.base_url + self.route.path

    async def _write_link(self, write: Any) -> None:
        await self.writer.run([write], Nothing())

    def _parse(self, mode: LinkMode, row_id: str, _: list[ApiError]) -> Change:
        assert self.route is not None
        self.path_id(self.resource)
        identifier = Identifier(self.relationship.target, row_id, "/data/0")
        linkage = LinkageChange((identifier,), is_list=True, pointer="/data", mode=mode)
        asked = self.asked("update", self.route.id)
        return msgspec.structs.replace(asked, relationships={self.relationship.name: linkage}, pointer="/data")
