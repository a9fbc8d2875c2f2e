"""Makes what every page has around its content."""

from __future__ import annotations

from querybuild.principal import Principal
from serializers.pages.rendering import Crumb, Frame
from server.engine import Engine
from server.routes import Shape


def make_frame(
    engine: Engine, principal: Principal, title: str, crumbs: tuple[Crumb, ...] = (), json_url: str = ""
) -> Frame:
    """Return what a page has around its content. The arguments are those of `Frame`."""
    chosen = engine.authenticator.chosen
    return Frame(
        base_url=engine.base_url,
        title=title,
        crumbs=crumbs,
        json_url=json_url,
        docs_url=engine.base_url + Shape.DOCS if Shape.DOCS in engine.fixed_paths else "",
        who=principal.subject,
        choices=() if chosen is None else tuple(chosen.by_name),
    )
