"""Answers the forms that delete a resource, and that add and remove links of a to-many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError
from querybuild.planning.context import check_action, check_method
from querybuild.query import Change, Identifier, LinkageChange, LinkMode, VersionMatch
from serializers.pages import forms
from serializers.pages.forms import SearchMatch
from serializers.pages.rendering import Crumb, render
from server.errors import PreconditionFailed
from server.execution.versions import shown_version
from server.execution.writes.answers import Nothing
from server.handlers.auditing import Target
from server.handlers.pages.answering import finish_page
from server.handlers.pages.form_base import FormHandler, searched_by


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
        prepared, result, row = await self.read_row()
        heading = prepared.ready.encoders.view.heading(row)
        page = render(
            "delete.html",
            self.frame(f"Delete {heading}", Crumb(heading, self.own_path()), Crumb("Delete")),
            heading=heading,
            kind=self.resource.type,
            row_id=self.route.id,
            version=shown_version(prepared, result) or "",
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
        except ApiError as error:
            details, status = self.refusal_details(error)
            if isinstance(error, PreconditionFailed):
                details = ["It has changed since this page was shown. Look at it before you delete it."]
            await self._ask(details, status)

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
        await self._show(words, await self.matches(self._target, words))

    @property
    def _target(self) -> Resource:
        return self.catalog.target(self.relationship)

    async def _show(
        self, words: str, matches: list[SearchMatch], errors: Sequence[str] = (), status: int = 200
    ) -> None:
        prepared, result, row = await self.read_row()
        view, name = prepared.ready.encoders.view, self.relationship.name
        related = {shown.name: shown for shown in view.related(result.rows)}[name]
        ids = view.ids_of(result.rows, name)
        methods = self.catalog.linkage_methods(self.resource, self.relationship)
        page = render(
            "links.html",
            self.frame(f"{name} of {view.heading(row)}", Crumb(view.heading(row), self.own_path()), Crumb(name)),
            heading=f"{name} of {view.heading(row)}",
            related=related,
            rows=list(zip(ids, related.links, strict=True)),
            may_add="add" in methods,
            may_remove="remove" in methods,
            by=label.name if (label := searched_by(self._target)) else "",
            list_url=self.base_url + self._target.path,
            target=self._target.type,
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
            details, status = self.refusal_details(error)
            await self._show("", [], details, status)

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
