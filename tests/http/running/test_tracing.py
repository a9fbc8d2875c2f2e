"""Traces by OpenTelemetry: a span for each request, with child spans for its stages and statements, and nothing without
the setting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tornado.ioloop import IOLoop

from server.observing.telemetry import Telemetry
from server.resources import built_in
from server.settings import Settings, StartError
from tests.http.conftest import Api, Start
from tests.http.running.test_metrics import locked, until_metrics
from tests.http.wire import connected
from waterspout import CustomHandler

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "s3cr3t"

Spans = Callable[[], list[ReadableSpan]]


class Traced(CustomHandler):
    async def get(self) -> None:
        trace.get_tracer("own", tracer_provider=self.telemetry.tracer.provider).start_span("work of its own").end()
        self.finish("done")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    monkeypatch.setattr("server.observing.tracing.OTLPSpanExporter", lambda: made)
    return made


@pytest.fixture
def api(io_loop: IOLoop, start: Start, database_url: str, exporter: InMemorySpanExporter) -> Iterator[Api]:
    made = io_loop.run_sync(lambda: start(database_url, built_in(), [("/own", Traced)], tracing=True))
    tracer = made.app.database.telemetry.tracer
    assert tracer is not None
    tracer.flush()
    exporter.clear()
    yield made
    made.app.database.telemetry.close()


@pytest.fixture
def spans(api: Api, exporter: InMemorySpanExporter) -> Spans:
    """Return the spans that have ended."""

    def ended() -> list[ReadableSpan]:
        assert api.app.database.telemetry.tracer is not None
        api.app.database.telemetry.tracer.flush()
        return list(exporter.get_finished_spans())

    return ended


async def test_a_request(api: Api, spans: Spans) -> None:
    path = f"/users?filter[first_name]={SECRET}"
    headers = {"X-Request-Id": "mine", "User-Agent": "tests/1"}
    assert (await api.request("GET", path, headers=headers)).status == 200
    found = {span.name: span for span in spans()}
    assert found.keys() == {"GET /{collection}", "parse", "plan", "execute", "encode", "SELECT"}
    request = found["GET /{collection}"]
    assert (request.kind, request.parent, request.status.status_code) == (SpanKind.SERVER, None, StatusCode.UNSET)
    assert dict(request.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/{collection}",
        "http.response.status_code": 200,
        "http.request.header.x-request-id": ("mine",),
        "url.path": "/users",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": api.port,
        "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "user_agent.original": "tests/1",
    }
    assert dict(request.resource.attributes)["service.name"] == "waterspout"


async def test_child_spans(api: Api, spans: Spans) -> None:
    """Stages follow one another within the request. The statement runs within its stage."""
    await api.get(f"/users?filter[first_name]={SECRET}")
    found = {span.name: span for span in spans()}
    request = found.pop("GET /{collection}")
    for span in found.values():
        assert span.parent is not None
        assert (span.parent.span_id, span.context.trace_id) == (request.context.span_id, request.context.trace_id)
    times = [(found[name].start_time or 0, found[name].end_time or 0) for name in ("plan", "execute", "encode")]
    (plan_begin, plan_end), (execute_begin, execute_end), (encode_begin, encode_end) = times
    assert plan_begin <= plan_end == execute_begin <= execute_end == encode_begin <= encode_end
    statement = found["SELECT"]
    assert execute_begin <= (statement.start_time or 0) <= (statement.end_time or 0) <= execute_end
    assert abs((request.start_time or 0) - plan_begin) < 1e9
    assert statement.kind == SpanKind.CLIENT
    attributes = dict(statement.attributes or {})
    assert (attributes["db.system.name"], attributes["db.operation.name"]) == ("postgresql", "SELECT")
    assert '"t0"."first_name"=$1' in str(attributes["db.query.text"])
    assert SECRET not in "".join(span.to_json() for span in spans())


async def test_the_parent_of_a_request(api: Api, spans: Spans) -> None:
    """W3C Trace Context. An unsampled trace gets no span."""
    await api.get("/", traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")
    await api.get("/", traceparent=f"00-{TRACE_ID}-{PARENT_ID}-00")
    await api.get("/", traceparent="nonsense")
    ours, new = spans()
    assert ours.parent is not None
    assert (f"{ours.context.trace_id:032x}", f"{ours.parent.span_id:016x}") == (TRACE_ID, PARENT_ID)
    assert new.parent is None
    assert f"{new.context.trace_id:032x}" != TRACE_ID


async def test_failures(api: Api, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client error is not an error of the span. A path without a route is unmatched."""

    def broken(*_: object) -> None:
        raise ValueError(SECRET)

    await api.get("/nothing")
    monkeypatch.setattr(api.app.engine.reads, "prepare", broken)
    await api.get("/users")
    missing, *_, fault = (span for span in spans() if span.kind == SpanKind.SERVER)
    assert (missing.name, missing.status.status_code) == ("GET unmatched", StatusCode.UNSET)
    assert "http.route" not in dict(missing.attributes or {})
    assert fault.status.status_code == StatusCode.ERROR
    assert dict(fault.attributes or {})["error.type"] == "500"
    assert SECRET not in fault.to_json()


async def test_a_client_that_disconnects(api: Api, spans: Spans) -> None:
    async with locked(api, "groups"):
        async with connected(api.port) as client:
            await client.send("GET /groups HTTP/1.1")
            await until_metrics(api, lambda found: found["http_requests_in_flight"][()] == 1)
        gone = ("GET", "/{collection}", "499")
        await until_metrics(api, lambda found: gone in found["http_request_duration_seconds_count"])
    [request] = [span for span in spans() if span.name == "GET /{collection}"]
    assert dict(request.attributes or {})["http.response.status_code"] == 499


async def test_spans_of_custom_code(api: Api, spans: Spans) -> None:
    assert (await api.get("/own")).body == b"done"
    own, request = spans()
    assert own.parent is not None
    assert (own.name, own.parent.span_id, request.name) == ("work of its own", request.context.span_id, "GET custom")


async def test_unknown_methods(api: Api, spans: Spans) -> None:
    """They create no spans, and so no names of spans."""
    assert (await api.request("BREW", "/users")).status == 405
    assert spans() == []


def test_nothing_is_imported_without_the_setting() -> None:
    program = (
        "import sys; import server.processes.worker; from server.observing.telemetry import Telemetry;"
        "from server.settings import Settings;"
        "Telemetry(Settings()); print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "server.observing.tracing", None)
    with pytest.raises(StartError, match=r"install waterspout\[tracing\]"):
        Telemetry(Settings(tracing=True))
