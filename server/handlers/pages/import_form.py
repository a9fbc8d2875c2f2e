"""Answers the form that imports lines of CSV: they are pasted or chosen, tried, and then written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from functools import partial

from querybuild.errors import ApiError, release_frames
from querybuild.planning.context import check_action, check_method
from serializers.lines.reading import Batch, csv_batches
from serializers.pages.rendering import Crumb, render
from server.errors import answer
from server.execution.writes.imports import Import
from server.execution.writes.reply import Reply
from server.handlers.pages.answering import finish_page
from server.handlers.pages.form_base import FormHandler

TEXT, CHECK = "text", "check"
"""The field with the lines, and the name of the button that only tries them."""


class ImportFormHandler(FormHandler):
    """Imports pasted lines."""

    async def get(self) -> None:
        check_method(self.resource, "create")
        check_action(self.resource, "create", self.context)
        self._show("")

    async def post(self) -> None:
        check_method(self.resource, "create")
        check_action(self.resource, "create", self.context)
        sent = self.read_form()
        text = sent.get(TEXT, "")
        self.is_tried = CHECK in sent
        try:
            await self.answer_write(
                lambda _: io.BytesIO(text.encode()), self._plan, self._run, lambda *_: self.go(self.list_path())
            )
        except ApiError as error:
            self.record_failure(error)
            made = answer(error, self.request_id)
            release_frames(error)
            self._show(text, [one["detail"] for one in json.loads(made.body)["errors"]], made.status)

    def _plan(self, file: io.BytesIO, _: list[ApiError]) -> Import:
        batches = partial(self._batches, file)
        return Import(self.writer, self.engine, self.context, self.resource, batches)

    def _batches(self, file: io.BytesIO) -> Iterator[Batch]:
        settings = self.engine.settings
        read_only = self.context.access.read_only.get(self.resource.type, frozenset())
        known = file, self.resource, self.asked("create"), read_only, settings.max_body_bytes
        return csv_batches(*known, is_safe=settings.csv_safe)

    async def _run(self, work: Import) -> int:
        async with self._running.imports:
            return await work.run()

    async def _send_reply(self, reply: Reply) -> None:
        """Lead to the list, or say what a try has found."""
        if not self.is_tried:
            await super()._send_reply(reply)
            return
        self._show(self._sent[TEXT], is_right=True)

    def _show(self, text: str, errors: Sequence[str] = (), status: int = 200, *, is_right: bool = False) -> None:
        read_only = self.context.access.read_only.get(self.resource.type, frozenset())
        names = [
            one.name
            for one in self.resource.attributes
            if one.is_writable(on_create=True) and one.name not in read_only
        ]
        title = f"Import {self.resource.type}"
        page = render(
            "import.html",
            self.frame(title, Crumb("Import")),
            heading=title,
            text=text,
            errors=errors,
            is_right=is_right,
            names=names,
            url=self.list_path(),
            back=self.list_path(),
        )
        finish_page(self, page, status)
