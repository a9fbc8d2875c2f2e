"""Sends traces with OpenTelemetry, which is an optional dependency.

What comes in: requests as they begin and end, statements that ran. What goes out: a span for each request, with child
spans for each stage and each statement. OpenTelemetry's own variables say where they are sent
(OTEL_EXPORTER_OTLP_ENDPOINT and others).

This module is imported only if the setting `tracing` is on. A span contains no query string and no value of a
statement.

Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/, .../database/database-spans/; W3C Trace Context
"""

from __future__ import annotations

import os
import threading
import time
from functools import lru_cache
from importlib.metadata import version

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.semconv.attributes import (
    client_attributes,
    db_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context, set_tracer_provider
from opentelemetry.util.types import AttributeValue
from tornado.httputil import split_host_and_port

from querybuild.errors import SHOWN_CHARACTERS
from server.observing.observed import UNMATCHED, ObservedHandler
from server.observing.slow import shape_of

_shape_of = lru_cache(maxsize=512)(shape_of)


class Tracer:
    """Makes and sends the spans of one worker."""

    def __init__(self, exporter: SpanExporter) -> None:
        own = {SERVICE_VERSION: version("waterspout")}
        if "OTEL_SERVICE_NAME" not in os.environ:
            own[SERVICE_NAME] = "waterspout"
        self.provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("waterspout", version("waterspout"))
        # Unix time minus the clock of stages and statements.
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def close(self, seconds: float) -> None:
        """Send the last spans. seconds: how long that may take."""
        closing = threading.Thread(target=self.provider.shutdown, daemon=True)
        closing.start()
        closing.join(seconds)

    def flush(self) -> None:
        """Send all spans now."""
        self.provider.force_flush()

    def begin(self, handler: ObservedHandler, route: str) -> None:
        """Begin the span of a request. Call it in its task, so that spans of custom code become child spans."""
        parent = extract(handler.request.headers)
        name = f"{handler.request.method} {route}"
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, _request_attributes(handler, route))
        handler.span = span
        context.attach(set_span_in_context(span, parent))

    def end(self, handler: ObservedHandler, end: float) -> None:
        """End the span of a request, and add the spans of its stages. end: by time.perf_counter."""
        span: Span | None = handler.span
        if span is None or not span.is_recording():
            return
        parent, later = set_span_in_context(span), end
        for name, begin in reversed(handler.stages):
            self._tracer.start_span(name, parent, start_time=self._time(begin)).end(self._time(later))
            later = begin
        status = handler.get_status()
        span.set_attribute(http_attributes.HTTP_RESPONSE_STATUS_CODE, status)
        if status >= 500:
            span.set_attribute(error_attributes.ERROR_TYPE, str(status))
            span.set_status(StatusCode.ERROR)
        span.end()

    def statement(self, sql: str, begin: float, seconds: float) -> None:
        """Add the span of a statement. begin: by time.perf_counter."""
        operation = sql.split(None, 1)[0].upper().rstrip(";") if sql.strip() else "SQL"
        attributes: dict[str, AttributeValue] = {
            db_attributes.DB_SYSTEM_NAME: "postgresql",
            db_attributes.DB_OPERATION_NAME: operation,
            db_attributes.DB_QUERY_TEXT: _shape_of(sql),
        }
        span = self._tracer.start_span(operation, None, SpanKind.CLIENT, attributes, start_time=self._time(begin))
        span.end(self._time(begin + seconds))

    def _time(self, moment: float) -> int:
        return self._epoch + int(moment * 1e9)


def open_tracer() -> Tracer:
    """Open a tracer in the process that sends: it starts a thread. Custom code uses the same provider."""
    tracer = Tracer(OTLPSpanExporter())
    set_tracer_provider(tracer.provider)
    return tracer


def _request_attributes(handler: ObservedHandler, route: str) -> dict[str, AttributeValue]:
    request = handler.request
    host, port = split_host_and_port(request.host)
    attributes: dict[str, AttributeValue] = {
        http_attributes.HTTP_REQUEST_METHOD: request.method or "",
        url_attributes.URL_PATH: request.path[:SHOWN_CHARACTERS],
        url_attributes.URL_SCHEME: request.protocol,
        server_attributes.SERVER_ADDRESS: host,
        network_attributes.NETWORK_PROTOCOL_VERSION: request.version.removeprefix("HTTP/"),
        client_attributes.CLIENT_ADDRESS: request.remote_ip or "",
        user_agent_attributes.USER_AGENT_ORIGINAL: request.headers.get("User-Agent", "")[:SHOWN_CHARACTERS],
        "http.request.header.x-request-id": (handler.request_id,),
    }
    if port is not None:
        attributes[server_attributes.SERVER_PORT] = port
    if route != UNMATCHED:
        attributes[http_attributes.HTTP_ROUTE] = route
    return attributes
