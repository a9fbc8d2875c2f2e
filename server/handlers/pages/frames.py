"""Makes what every page has around its content."""

from __future__ import annotations

from urllib.parse import quote

from querybuild.principal import Principal
from serializers.pages.rendering import Crumb, Frame
from server.engine import Engine
from server.http.request import Request
from server.routes import Shape, below_prefix

_OF_SIGNING = (Shape.PAGES_SIGN_IN, Shape.PAGES_CALLBACK, Shape.PAGES_SIGN_OUT)

MAX_WAY_BACK = 4000
"""How long the way back from a sign-in may be, quoted. A longer one leads to the page without its parameters."""

_NAMES = ("name", "preferred_username", "email")
"""The claims with a name for people (OpenID Connect Core 1.0, 5.1), the best first."""


def make_frame(
    engine: Engine,
    request: Request,
    principal: Principal,
    title: str,
    crumbs: tuple[Crumb, ...] = (),
    json_url: str = "",
) -> Frame:
    """Return what a page has around its content. The arguments are those of `Frame`."""
    chosen, base = engine.authenticator.chosen, engine.base_url
    path = below_prefix(request.path, engine.settings.path_prefix) or "/"
    is_of_signing = path in _OF_SIGNING
    offers_sign_in = principal.is_anonymous and _can_sign_in(engine, request, is_of_signing=is_of_signing)
    back = "/" if is_of_signing else _way_back(path, request)
    return Frame(
        base_url=base,
        title=title,
        crumbs=crumbs,
        json_url=json_url,
        docs_url=base + Shape.DOCS if Shape.DOCS in engine.fixed_paths else "",
        who=_name_of(principal),
        sign_in_url=f"{base}{Shape.PAGES_SIGN_IN}?to={back}" if offers_sign_in else "",
        sign_out_url=base + Shape.PAGES_SIGN_OUT if request.is_signed_in else "",
        is_signed_out=offers_sign_in and request.method == "POST" and not is_of_signing,
        choices=() if chosen is None else tuple(chosen.by_name),
        chosen="" if chosen is None else chosen.name_of(principal),
    )


def _can_sign_in(engine: Engine, request: Request, *, is_of_signing: bool) -> bool:
    """Return whether a page offers to sign in: the browser has no session, or the page is about signing in. Where there
    is no route, nobody has asked who it is."""
    sessions = engine.authenticator.sessions
    if sessions is None:
        return False
    return is_of_signing or bool(request.answer_cookies) or sessions.session_of(request) is None


def _way_back(path: str, request: Request) -> str:
    """Return a page with its parameters, quoted as a value. path: below the base URL. After a form it is the form
    without what was typed."""
    if request.query and request.method == "GET":
        way_back = quote(f"{path}?{request.query}", safe="/")
        if len(way_back) <= MAX_WAY_BACK:
            return way_back
    return quote(path, safe="/")


def _name_of(principal: Principal) -> str:
    """Return how a page calls somebody."""
    named = (principal.claims.get(name) for name in _NAMES)
    return next((name for name in named if isinstance(name, str) and name), principal.subject)
