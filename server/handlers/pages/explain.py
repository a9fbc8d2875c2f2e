"""Answers with the SQL of a read, and PostgreSQL's plans. What comes in: the URL of the read."""

from __future__ import annotations

import msgspec

from querybuild.errors import Forbidden, ParameterError, not_allowed
from serializers.pages.rendering import Crumb, render
from server.explaining.requested import NotARead, read_url
from server.explaining.running import ExplainedStatement, explain_planned
from server.explaining.texts import parameter_lines, plan_lines, sql_lines
from server.handlers import telling
from server.handlers.pages.answering import finish_page
from server.handlers.pages.frames import make_frame
from server.handlers.reading import ReadingHandler
from server.http.negotiation import HTML


class ShownStatement(msgspec.Struct, frozen=True):
    """A statement on the page, each part as lines."""

    name: str
    sql: str
    parameters: str
    plan: str


class ExplainHandler(ReadingHandler):
    """Explains a read, as the principal would have it. It is not run."""

    answers_pages = True

    async def get(self) -> None:
        self.answer_type = HTML
        if not telling.may_explain(self.engine, self.request, self.sender):
            if not self.engine.has_authentication:
                raise Forbidden("Without authentication, SQL is only shown on the machine of the server.")
            principal = self.sender.principal
            raise not_allowed(principal, "SQL is for the role or scope that the setting auth_admin names.")
        url = self.get_query_argument("url", "")
        if not url.startswith("/"):
            raise ParameterError("It is not the path of a read, such as '/users?sort=age'.", parameter="url")
        try:
            requested = read_url(url, self.engine, self.context)
        except NotARead as error:
            raise ParameterError(f"{error}.", parameter="url") from None
        database = self.database.acting_for(self.context.principal, "read")
        statements = await self.cancel_scope.run(explain_planned(database, requested))
        page = render(
            "explain.html",
            make_frame(self.engine, self.request, self.context.principal, "SQL of a read", (Crumb("SQL"),)),
            url=url,
            plan="\n".join(plan_lines(requested.prepared.plan)),
            statements=[_shown(statement) for statement in statements],
        )
        finish_page(self, page, is_kept=False)


def _shown(statement: ExplainedStatement) -> ShownStatement:
    sql, parameters = sql_lines(statement.sql), parameter_lines(statement.values)
    return ShownStatement(statement.name, "\n".join(sql), "\n".join(parameters), "\n".join(statement.plan))
