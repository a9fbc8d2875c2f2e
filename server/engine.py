"""Defines the engine: settings, catalog, and what was made of them, as one value. A request keeps the engine that it
began with. A reload creates another.

What comes in: settings, the Catalog, facts about the live tables. `preparing/` makes reads and writes of requests with
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.access import ANYONE
from querybuild.declarations.catalog import Catalog
from querybuild.planning.context import Context, View
from querybuild.planning.rules import read_rules
from querybuild.principal import ANONYMOUS, Principal
from querybuild.query import Limits
from serializers.representation import Style
from server.authentication.authenticator import Authenticate, Authenticator
from server.authentication.well_known import resource_metadata
from server.http.headers import private_directives
from server.preparing.encoders import EncoderCaches, Encoders
from server.preparing.reads import ReadCaches, Reads
from server.preparing.statements import StatementCaches, Statements
from server.preparing.typed_writes import TypedCaches
from server.preparing.views import view_of
from server.preparing.writes import WriteCaches, Writes
from server.routes import fixed_paths
from server.schema.live_limits import checks_of_limits
from server.schema.live_schema import LiveSchema
from server.settings import Settings

ROW_BODIES = 16
"""The assumed size of the largest row, in bodies of the largest size."""

ANYBODY = Context()
CACHES = sum(
    len(caches.__struct_fields__) for caches in (ReadCaches, WriteCaches, TypedCaches, StatementCaches, EncoderCaches)
)


class Engine:
    """What the requests of one set of settings and declarations need. reads, writes: prepare them. authenticator: finds
    out who sends a request. authenticate: its method. has_authentication: whether anybody can be signed in. is_open:
    whether nobody can, and there are no rules. hides_relationships: whether some routes only exist for some
    principals."""

    def __init__(
        self, settings: Settings, catalog: Catalog, schema: LiveSchema, authenticator: Authenticator | None = None
    ) -> None:
        """authenticator: that of the worker, or None to make one from the settings."""
        self.settings = settings
        self.catalog = schema.catalog or catalog
        self.schema = schema
        self.authenticator = Authenticator(settings) if authenticator is None else authenticator
        self.authenticate: Authenticate = self.authenticator.authenticate
        self.has_authentication = self.authenticator.is_configured
        self.private_cache_control = private_directives(settings.cache_control)
        self.resource_metadata = resource_metadata(settings)
        self.view = View(self.catalog, checks_of_limits(schema.limits), schema.references)
        self._rules = read_rules(self.view, is_closed=self.has_authentication)
        self.is_open = not self.has_authentication and self._rules is None
        self.hides_relationships = any(
            relationship.read_by != ANYONE for each in self.catalog for relationship in each.relationships
        )
        self.fixed_paths = fixed_paths(
            settings.operations_path,
            has_admin=settings.admin_port is None,
            has_openapi=settings.openapi,
            has_docs=settings.docs_page,
            has_pages=settings.pages,
            has_sign_in=settings.has_sign_in,
        )
        self.base_url = settings.path_prefix if settings.public_url is None else settings.public_url
        limits = msgspec.convert(settings, Limits, from_attributes=True)
        self.limits = msgspec.structs.replace(limits, time_zones=schema.time_zones, has_trigrams=schema.has_trigrams)
        bounds = (settings.statement_cache_entries, settings.statement_cache_bytes // CACHES)
        make_cache: Callable[[], BoundedCache[Any]] = lambda: BoundedCache(*bounds)  # noqa: E731
        self.statements = Statements(make_cache)
        self.encoders = Encoders(Style(self.base_url, settings.csv_safe), make_cache)
        made = self.statements, self.encoders, make_cache
        filter_seconds = settings.filter_timeout_seconds
        self.reads = Reads(self.limits, self.view, schema.unenforced_keys, filter_seconds, *made)
        self.writes = Writes(self.limits, self.view, *made)

    def context_of(self, principal: Principal) -> Context:
        """Return the context of the requests of a principal. Raises what the functions of the rules raise."""
        if self._rules is not None:
            return self._rules.context_of(principal)
        return ANYBODY if principal is ANONYMOUS else Context(principal=principal)

    def rights_of(self, principal: Principal) -> tuple[Any, ...]:
        """Return what the rules ask a principal for. Raises what the functions of the rules raise."""
        return () if self._rules is None else self._rules.rights_of(principal)

    def view_of(self, context: Context) -> View:
        """Return the declarations as the principal sees them."""
        return view_of(context, self.view)

    @property
    def caches(self) -> dict[str, BoundedCache[Any]]:
        """All caches by their names. Each has the same share of `statement_cache_bytes`."""
        makers = (self.reads, self.writes, self.writes.typed, self.statements, self.encoders)
        return {name: getattr(maker.caches, name) for maker in makers for name in maker.caches.__struct_fields__}

    @property
    def has_room_for_rows(self) -> bool:
        """Whether the largest assumed row fits into an answer. Then a write of one row can be a single statement: its
        answer is never too large, so nothing has to be rolled back."""
        return self.settings.max_answer_bytes >= ROW_BODIES * self.settings.max_body_bytes
