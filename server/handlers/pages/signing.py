"""Signs people in and out, and lets a person choose who to be, where the settings allow it. These pages write no rows,
so a server that is only for reads has them, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from querybuild.errors import ParameterError
from serializers.pages.rendering import render
from server.authentication.chosen import COOKIE
from server.errors import RouteNotFound
from server.handlers.base import Handler
from server.handlers.pages.answering import finish_page, lead_to
from server.handlers.pages.frames import make_frame
from server.handlers.pages.sent_forms import check_own_page, read_fields
from server.handlers.write_checks import check_body
from server.http.negotiation import FORM, HTML

if TYPE_CHECKING:
    from server.authentication.signing_in.sessions import Sessions

TO = "to"
"""The parameter with the way back."""

_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path below the base URL, with its query: one / at its begin, no \\, and no characters that a URL does not have."""


class SigningHandler(Handler):
    """The base of these handlers. They do not ask who sends a request: they find out."""

    answers_pages = True
    identifies = False

    def check_request(self) -> None:
        """Check that a form is one of this server."""
        if self.request.method == "POST":
            check_own_page(self.request)
        super().check_request()
        self.answer_type = HTML

    def prepare_write(self) -> None:
        check_body(self.request.headers, self.received, FORM)

    @property
    def sessions(self) -> Sessions:
        """The sessions of the server."""
        sessions = self.engine.authenticator.sessions
        assert sessions is not None
        return sessions


class SignInHandler(SigningHandler):
    """Leads to the issuer."""

    async def get(self) -> None:
        to = self.get_query_argument(TO, "/")
        if _OWN_PATH.fullmatch(to) is None:
            raise ParameterError("The way back is a path of this server, such as '/users?sort=age'.", parameter=TO)
        url = await self.cancel_scope.run(self.sessions.begin(self.request, to))
        self.tell_cookies()
        lead_to(self, url)


class CallbackHandler(SigningHandler):
    """Finishes a sign-in: the issuer leads here."""

    async def get(self) -> None:
        answer = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        to = await self.cancel_scope.run(self.sessions.finish(self.request, answer))
        self.tell_cookies()
        lead_to(self, self.engine.base_url + to)


class SignOutHandler(SigningHandler):
    """Ends a session, here and at the issuer."""

    async def post(self) -> None:
        url = await self.cancel_scope.run(self.sessions.end(self.request))
        self.tell_cookies()
        if not url:
            lead_to(self, f"{self.engine.base_url}/")
            return
        # A redirect of a form is only allowed to this server, by the Content-Security-Policy.
        frame = make_frame(self.engine, self.request, self.sender.principal, "You are signed out here")
        finish_page(self, render("signed_out.html", frame, url=url), is_kept=False)


class ChooseHandler(SigningHandler):
    """Sets the cookie that names the principal."""

    async def post(self) -> None:
        chosen = self.engine.authenticator.chosen
        if chosen is None:
            raise RouteNotFound("Nobody can be chosen here.")
        name = read_fields(self.received.take()).get("name", "")
        value = quote(name, safe="") if name in chosen.by_name else ""
        ends = "" if value else "; Max-Age=0"
        self.set_header("Set-Cookie", f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax{ends}")
        lead_to(self, f"{self.engine.base_url}/")
