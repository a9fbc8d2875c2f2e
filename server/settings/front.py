"""Defines the settings that say where the server listens, and what browsers, caches and proxies see of it."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from server.settings import checks
from server.settings.groups import ADDRESS, FRONT, LISTENING, PORT, About, Port, Seconds, Text


class FrontSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of listening, and of browsers, caches and proxies."""

    host: Annotated[
        str,
        Meta(min_length=1, description="Address or name to listen on."),
        ADDRESS,
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port to listen on; 0 takes any free one."), PORT] = 8080
    unix_socket: Annotated[
        Path | None,
        Meta(description="Listen on a Unix socket at this path; host and port are then not used."),
        About("Listening", metavar="PATH", takes_restart=True),
    ] = None
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Processes that answer requests, on the same address."), LISTENING
    ] = 1
    admin_host: Annotated[
        str,
        Meta(min_length=1, description="Address or name that admin_port listens on."),
        ADDRESS,
    ] = "127.0.0.1"
    admin_port: Annotated[
        Port | None,
        Meta(description="A TCP port only for health and metrics, which the main port then does not answer."),
        PORT,
    ] = None
    drain_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a stopping worker keeps idle connections open for one more request; at most the 25 "
            "seconds of a stop."
        ),
        LISTENING,
    ] = 2.0
    worker_timeout_seconds: Annotated[
        Seconds,
        Meta(description="After how long a worker whose event loop hangs is killed and replaced."),
        LISTENING,
    ] = 30.0
    public_url: Annotated[
        str | None,
        Meta(
            description="The server's URL as clients see it; with it links are absolute, without it they are paths. "
            "Behind a proxy that removes a prefix: the URL with that prefix, or only that prefix."
        ),
        About(FRONT, metavar="URL", check=checks.public_url),
    ] = None
    path_prefix: Annotated[
        str,
        Meta(
            pattern=r"^(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$",
            description="The prefix of all paths, also of /-/live; links have it too, unless public_url is set.",
        ),
        About(FRONT, metavar="PATH", expected="a path such as /api, or an empty text"),
    ] = ""
    trusted_proxies: Annotated[
        Text | None,
        Meta(
            description="Proxies whose Forwarded and X-Forwarded headers are believed: addresses and networks, with "
            "commas between, and unix for connections to the Unix socket. Without it none."
        ),
        About(FRONT, metavar="NETWORKS", check=checks.trusted_proxies),
    ] = None
    cors_origins: Annotated[
        Text | None,
        Meta(
            description="Origins whose web pages may use the server, with commas between, or * for all; without it "
            "only its own."
        ),
        About(FRONT, metavar="ORIGINS", check=checks.cors_origins),
    ] = None
    allowed_hosts: Annotated[
        Text | None,
        Meta(
            description="Names that the Host of a request may have, with commas between, or * for all; other names "
            "are a 421. Without it the addresses that the server listens on, localhost and loopback addresses, and "
            "the host of public_url; on a Unix socket all names."
        ),
        About(FRONT, metavar="NAMES", check=checks.allowed_hosts),
    ] = None
    openapi: Annotated[
        bool, Meta(description="Answer /-/openapi.json, a description of the API in OpenAPI 3.1."), About(FRONT)
    ] = True
    docs_page: Annotated[
        bool, Meta(description="Answer /-/docs, a page that shows this description; it needs openapi."), About(FRONT)
    ] = True
    api_title: Annotated[
        Text, Meta(description="The title of the API in its description."), About(FRONT, metavar="TEXT")
    ] = "JSON:API"
    api_version: Annotated[
        Text, Meta(description="The version of the API in its description."), About(FRONT, metavar="TEXT")
    ] = "1.0"
    compression: Annotated[
        Literal["off", "gzip"],
        Meta(
            description="Whether answers over 1 KB are compressed for clients that accept it; a proxy does it more "
            "cheaply."
        ),
        About(FRONT),
    ] = "off"
    cache_control: Annotated[
        str,
        Meta(
            description="The header Cache-Control of resources that are read; that of errors is no-store. Empty, by "
            "flag or file, for none."
        ),
        About(
            FRONT,
            metavar="DIRECTIVES",
            expected="directives such as no-cache, or an empty text",
            check=checks.cache_control,
        ),
    ] = "no-cache"
