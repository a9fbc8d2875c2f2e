"""Requests that are refused whatever they ask for, because of whom or how they ask."""

from __future__ import annotations

from querybuild.errors import quoted
from server.errors import ForeignOrigin, UnknownHost
from server.handlers.base import Handler


class UnknownHostHandler(Handler):
    """The request is for a name that is not the server's."""

    methods = ()

    def _no_route(self) -> UnknownHost:
        name = quoted(str(self.request.host_name))
        detail = f"{name} is no name of this server. Add it to the setting allowed_hosts if it should be one."
        return UnknownHost(detail, header="Host")


class ForeignOriginHandler(Handler):
    """The page of another origin wants to write."""

    methods = ()

    def _no_route(self) -> ForeignOrigin:
        origin = self.request.headers["Origin"]
        detail = (
            f"Pages of {quoted(origin)} may not write here. Add it to the setting cors_origins if they should; "
            "if it is this server's own origin, set public_url."
        )
        if origin == "null":
            detail = "Pages without an origin, such as files, may not write here, unless the setting cors_origins is *."
        return ForeignOrigin(detail, header="Origin")
