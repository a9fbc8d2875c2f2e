"""Lists the handlers, one for each route shape."""

from __future__ import annotations

from server.handlers.base import Handler
from server.handlers.custom import CustomHandler
from server.handlers.fixed.admin import AdminHandler, LiveHandler, MetricsHandler, ReadyHandler
from server.handlers.fixed.descriptions import DescribingHandler, DocsFileHandler, DocsHandler, OpenApiHandler
from server.handlers.fixed.protected_resource import ProtectedResourceHandler
from server.handlers.fixed.root import RootHandler, ServerHandler
from server.handlers.pages.bytes_handler import BytesHandler
from server.handlers.pages.explain import ExplainHandler
from server.handlers.pages.facets import FacetsHandler
from server.handlers.pages.files import PagesFileHandler, PagesGoHandler
from server.handlers.pages.forms import CreateFormHandler, EditFormHandler
from server.handlers.pages.import_form import ImportFormHandler
from server.handlers.pages.other_forms import DeleteFormHandler, LinksFormHandler
from server.handlers.pages.signing import CallbackHandler, ChooseHandler, SignInHandler, SignOutHandler
from server.handlers.preflight import PreflightHandler
from server.handlers.refusing import ForeignOriginHandler, NotFoundHandler, UnknownHostHandler
from server.handlers.resources.function import FunctionHandler
from server.handlers.resources.operations import OperationsHandler
from server.handlers.resources.related import RelatedHandler
from server.handlers.resources.relationship import RelationshipHandler
from server.handlers.resources.resource import CollectionHandler, ResourceHandler
from server.routes import Shape

HANDLERS: dict[Shape, type[Handler]] = {
    Shape.ROOT: RootHandler,
    Shape.LIVE: LiveHandler,
    Shape.READY: ReadyHandler,
    Shape.METRICS: MetricsHandler,
    Shape.OPENAPI: OpenApiHandler,
    Shape.DOCS: DocsHandler,
    Shape.DOCS_FILE: DocsFileHandler,
    Shape.PAGES_FILE: PagesFileHandler,
    Shape.PAGES_GO: PagesGoHandler,
    Shape.PAGES_BYTES: BytesHandler,
    Shape.PAGES_CHOOSE: ChooseHandler,
    Shape.PAGES_SIGN_IN: SignInHandler,
    Shape.PAGES_CALLBACK: CallbackHandler,
    Shape.PAGES_SIGN_OUT: SignOutHandler,
    Shape.PAGES_EXPLAIN: ExplainHandler,
    Shape.PAGES_FACETS: FacetsHandler,
    Shape.FORM_NEW: CreateFormHandler,
    Shape.FORM_IMPORT: ImportFormHandler,
    Shape.FORM_EDIT: EditFormHandler,
    Shape.FORM_DELETE: DeleteFormHandler,
    Shape.FORM_LINKS: LinksFormHandler,
    Shape.COLLECTION: CollectionHandler,
    Shape.RESOURCE: ResourceHandler,
    Shape.RELATED: RelatedHandler,
    Shape.RELATIONSHIP: RelationshipHandler,
    Shape.OPERATIONS: OperationsHandler,
    Shape.FUNCTION: FunctionHandler,
}

__all__ = [
    "HANDLERS",
    "AdminHandler",
    "CustomHandler",
    "DescribingHandler",
    "ForeignOriginHandler",
    "Handler",
    "LiveHandler",
    "NotFoundHandler",
    "PreflightHandler",
    "ProtectedResourceHandler",
    "ReadyHandler",
    "ServerHandler",
    "UnknownHostHandler",
]
