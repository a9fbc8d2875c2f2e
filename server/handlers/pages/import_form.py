"""Answers the form that imports lines of CSV: they are pasted or chosen, tried, and then written."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial

import msgspec

from querybuild.errors import ApiError
from querybuild.parse import ON_CONFLICT, parse_on_conflict
from querybuild.planning.context import check_action, check_method, refused_action
from querybuild.planning.writes.conflicts import conflict_keys
from serializers.pages.rendering import Crumb, render
from server.execution.writes.imports import Records
from server.execution.writes.reply import Reply
from server.handlers.pages.answering import finish_page
from server.handlers.pages.form_base import FormHandler
from server.handlers.resources.importing import csv_records, make_import, run_import

FILE, TEXT, CHECK, KEY = "file", "text", "check", "key"
"""The file and the field with the lines, the name of the button that only tries them, and the fields by which a row is
found and updated."""


class ImportFormHandler(FormHandler):
    """Imports pasted lines."""

    async def get(self) -> None:
        check_method(self.resource, "create")
        check_action(self.resource, "create", self.context)
        self._show()

    async def post(self) -> None:
        check_method(self.resource, "create")
        check_action(self.resource, "create", self.context)
        self.is_tried = CHECK in self.read_form()
        try:
            await self.answer_write(
                self._parse,
                lambda records, _: make_import(self, records),
                partial(run_import, self),
                lambda *_: self.go(self.list_path()),
            )
        except ApiError as error:
            self._show(*self.refusal_details(error))

    @property
    def _text(self) -> str:
        """The lines: those of a file come first. A browser sends an empty part if no file is chosen."""
        return self._sent.get(FILE) or self._sent.get(TEXT, "")

    def _parse(self, errors: list[ApiError]) -> Records:
        """Return what reads the lines."""
        key = self._sent.get(KEY)
        on_conflict = parse_on_conflict(((ON_CONFLICT, key),), errors) if key else None
        asked = msgspec.structs.replace(self.asked("create"), on_conflict=on_conflict)
        return csv_records(self, io.BytesIO(self._text.encode()), asked)

    async def _send_reply(self, reply: Reply) -> None:
        """Lead to the list, or say what a try has found."""
        if not self.is_tried:
            await super()._send_reply(reply)
            return
        self._show(is_right=True)

    def _show(self, errors: Sequence[str] = (), status: int = 200, *, is_right: bool = False) -> None:
        read_only = self.context.access.read_only_of(self.resource.type)
        names = [
            attribute.name
            for attribute in self.resource.attributes
            if attribute.is_writable(on_create=True) and attribute.name not in read_only
        ]
        may_update = refused_action(self.resource, "update", self.context) is None
        title = f"Import {self.resource.type}"
        page = render(
            "import.html",
            self.frame(title, Crumb("Import")),
            heading=title,
            text=self._text,
            errors=errors,
            is_right=is_right,
            names=names,
            keys=conflict_keys(self.resource) if may_update else [],
            key=self._sent.get(KEY, ""),
            url=self.list_path(),
            back=self.list_path(),
        )
        finish_page(self, page, status)
