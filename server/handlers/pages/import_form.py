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
from serializers.lines.reading import csv_batches
from serializers.pages.rendering import Crumb, render
from server.execution.writes.imports import Import, Records
from server.execution.writes.reply import Reply
from server.handlers.pages.answering import finish_page
from server.handlers.pages.form_base import FormHandler

TEXT, CHECK, KEY = "text", "check", "key"
"""The field with the lines, the name of the button that only tries them, and the fields by which a row that is there is
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
            await self.answer_write(self._parse, self._plan, self._run, lambda *_: self.go(self.list_path()))
        except ApiError as error:
            refused, status = self.refusal(error)
            self._show([one["detail"] for one in refused], status)

    def _parse(self, errors: list[ApiError]) -> Records:
        """Return what reads the lines."""
        settings, key = self.engine.settings, self._sent.get(KEY)
        on_conflict = parse_on_conflict(((ON_CONFLICT, key),), errors) if key else None
        asked = msgspec.structs.replace(self.asked("create"), on_conflict=on_conflict)
        file = io.BytesIO(self._sent.get(TEXT, "").encode())
        known = file, self.resource, asked, self._read_only(), settings.max_body_bytes
        return partial(csv_batches, *known, is_safe=settings.csv_safe)

    def _plan(self, records: Records, _: list[ApiError]) -> Import:
        return Import(self.writer, self.engine, self.context, self.resource, records)

    def _read_only(self) -> frozenset[str]:
        return self.context.access.read_only.get(self.resource.type, frozenset())

    async def _run(self, work: Import) -> int:
        async with self._running.imports:
            return await work.run()

    async def _send_reply(self, reply: Reply) -> None:
        """Lead to the list, or say what a try has found."""
        if not self.is_tried:
            await super()._send_reply(reply)
            return
        self._show(is_right=True)

    def _show(self, errors: Sequence[str] = (), status: int = 200, *, is_right: bool = False) -> None:
        read_only = self._read_only()
        names = [
            one.name
            for one in self.resource.attributes
            if one.is_writable(on_create=True) and one.name not in read_only
        ]
        may_update = refused_action(self.resource, "update", self.context) is None
        title = f"Import {self.resource.type}"
        page = render(
            "import.html",
            self.frame(title, Crumb("Import")),
            heading=title,
            text=self._sent.get(TEXT, ""),
            errors=errors,
            is_right=is_right,
            names=names,
            keys=conflict_keys(self.resource) if may_update else [],
            key=self._sent.get(KEY, ""),
            url=self.list_path(),
            back=self.list_path(),
        )
        finish_page(self, page, status)
