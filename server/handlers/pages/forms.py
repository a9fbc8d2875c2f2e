"""Answers the forms to create and to edit a resource. A form becomes the document that a
program would send, and is written as this is: rules, hooks, checks and versions hold without a line of their own here.
What comes in: a form. What goes out: the page of what was written, or the form again with what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec

from querybuild.errors import ApiError
from querybuild.planning.context import check_action, check_method
from querybuild.planning.rows import Row
from querybuild.query import Change, Owner, VersionMatch
from serializers.decode import decode_resource_document, with_id
from serializers.links import quote_segment, resource_path
from serializers.pages import forms
from serializers.pages.forms import FormField, LinkField
from serializers.pages.rendering import Crumb, render
from serializers.pointers import tokens
from serializers.resource_objects import value_positions
from server.errors import PreconditionFailed, RequestFault
from server.execution.execute import ReadResult
from server.execution.versions import shown_version
from server.execution.writes.reply import Reply
from server.handlers.auditing import Target
from server.handlers.pages.answering import finish_page
from server.handlers.pages.form_base import FormHandler, searched_by
from server.handlers.writing import AnsweredWrite
from server.preparing.reads import PreparedRead


class ResourceForm(FormHandler):
    """The base of the forms to create and to edit a resource."""

    on_create: bool

    def fields(self) -> tuple[list[FormField], list[LinkField]]:
        """Return the fields, without values."""
        read_only = self.context.access.read_only_of(self.resource.type)
        links = forms.link_fields(self.resource, read_only, on_create=self.on_create)
        for link in links:
            target = self.catalog.by_type[link.target]
            if (label := searched_by(target)) is not None:
                link.list_url, link.by = self.base_url + target.path, label.name
        return forms.attribute_fields(self.resource, read_only, on_create=self.on_create), links

    def sent_fields(self) -> tuple[list[FormField], list[LinkField]]:
        """Return the fields as the form has sent them."""
        fields, links = self.fields()
        sent = self._sent
        return [forms.with_sent(field, sent) for field in fields], [forms.link_with_sent(link, sent) for link in links]

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
        refused, status = self.refusal(error)
        fields, links = self.sent_fields()
        by_name: dict[str, FormField | LinkField] = {editable.name: editable for editable in fields}
        by_name |= {link.name: link for link in links}
        others = []
        for error_object in refused:
            names = tokens(error_object.get("source", {}).get("pointer", ""))
            field = by_name.get(names[2]) if len(names) > 2 else None
            if field is None:
                others.append(error_object["detail"])
            else:
                field.errors.append(error_object["detail"])
        version = None
        if isinstance(error, PreconditionFailed):
            fields, version = await self._with_current(fields)
        self.show(fields, links, others, status, version)

    async def _with_current(self, fields: list[FormField]) -> tuple[list[FormField], str | None]:
        """Return the fields with what they are now, and the version that the row has now."""
        prepared, result, row = await self.read_row()
        version = shown_version(prepared, result)
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
            has_errors=bool(errors) or any(field.errors for field in fields) or any(link.errors for link in links),
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
        client_id = self._sent.get("id", "").strip() or None
        document = forms.document_of(self.resource, fields, links, client_id, errors, on_create=True)
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
        prepared, result, row = await self.read_row()
        values = _values(prepared, row)
        fields, links = self.fields()
        shown = [forms.with_text(field, values[field.name]) if field.name in values else field for field in fields]
        view = prepared.ready.encoders.view
        related = {shown_links.name: shown_links.links for shown_links in view.related(result.rows)}
        for link in links:
            ids = view.ids_of(result.rows, link.name)
            link.id = link.shown = ids[0] if ids else ""
            label = related[link.name][0].label if ids and related.get(link.name) else ""
            link.title = "" if label == link.id else label
        self.show(shown, links, version=shown_version(prepared, result) or "")

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
        document = forms.document_of(self.resource, fields, links, self.route.id, errors, on_create=False)
        version = self._sent.get(forms.VERSION, "")
        match = VersionMatch(frozenset({version})) if version else None
        asked = msgspec.structs.replace(self.asked("update", self.route.id), match=match)
        change = decode_resource_document(document, asked, errors, self.engine.limits)
        return None if change is None else with_id(change, self.route.id, errors)

    async def _check_shown(self) -> None:
        """Check that a resource without versions is as it was shown. Raises PreconditionFailed."""
        prepared, _, row = await self.read_row()
        fields, _ = self.sent_fields()
        if any(field.now is not None for field in forms.changed_meanwhile(fields, _values(prepared, row))):
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
        attribute.name: row[positions[attribute]]
        if attribute.type.json.shown is None
        else attribute.type.json.shown(row[positions[attribute]])
        for attribute in node.attributes
    }
