"""The metrics and their formats, read by Prometheus' own parsers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from server.observing import metrics
from server.observing.exposition import expose
from server.observing.metrics import METRICS, SECONDS, Meter, Metric
from server.observing.shared_counters import Figures, SharedCounters
from server.routes import OPENMETRICS, TEXT

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(families: Iterable[Any]) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def shown(counters: SharedCounters) -> Samples:
    return samples(parser.text_string_to_metric_families(expose(counters.read()).text.decode()))


def test_the_list_is_complete() -> None:
    assert list(METRICS) == [value for value in vars(metrics).values() if isinstance(value, Metric)]
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_names() -> None:
    """Source: https://prometheus.io/docs/practices/naming/."""
    for metric in METRICS:
        is_histogram = metric.kind == "histogram"
        assert re.fullmatch(r"waterspout(_[a-z]+)+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric
        assert is_histogram == bool(metric.bounds), metric
        start = "waterspout_worker_start_time_seconds"
        assert metric.name == start or is_histogram == metric.name.endswith("_seconds"), metric
        assert metric.help.endswith(".") or metric is metrics.BUILD
        assert tuple(sorted(metric.bounds)) == metric.bounds


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "observing.md").read_text()
    rows = re.findall(r"^\| `(waterspout_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    listed = [(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows]
    assert listed == [(metric.name, metric.kind, metric.labels) for metric in METRICS]


@pytest.fixture
def counters() -> SharedCounters:
    return SharedCounters()


@pytest.fixture
def meter(counters: SharedCounters) -> Meter:
    return Meter(counters.segment())


def test_a_request(counters: SharedCounters, meter: Meter) -> None:
    meter.request("/{collection}", "GET", 200, 0.004, 100)
    meter.request("/{collection}", "GET", 200, 0.005, 11)
    meter.request("/{collection}", "GET", 200, 77.0, 0)
    meter.request("/{collection}", "BREW", 405, 0.004, 7)
    found = shown(counters)
    got = (("method", "GET"), ("route", "/{collection}"), ("status", "200"))
    odd = (("method", "other"), ("route", "/{collection}"), ("status", "405"))
    name = "waterspout_http_request_duration_seconds"
    for bound in SECONDS:
        at_most = 0.0 if bound < 0.005 else 2.0
        assert found[f"{name}_bucket", (("le", repr(bound)), *got)] == at_most
    assert found[f"{name}_bucket", (("le", "+Inf"), *got)] == found[f"{name}_count", got] == 3.0
    assert found[f"{name}_sum", got] == pytest.approx(77.009)
    assert found["waterspout_http_response_bytes_total", got] == 111.0
    assert (found[f"{name}_count", odd], found["waterspout_http_response_bytes_total", odd]) == (1.0, 7.0)


def test_stages(counters: SharedCounters, meter: Meter) -> None:
    """Each stage ends where the next one begins, and the last one ends with the request."""
    meter.stages("/", [("plan", 1.0), ("execute", 1.5), ("encode", 3.5)], 3.75)
    meter.stages("/", [("plan", 1.0)], 2.0)
    meter.stages("/", [], 2.0)
    found = shown(counters)
    name = "waterspout_stage_duration_seconds"
    of = {stage: (("route", "/"), ("stage", stage)) for stage in ("plan", "execute", "encode")}
    assert {stage: found[f"{name}_sum", of[stage]] for stage in of} == {"plan": 1.5, "execute": 2.0, "encode": 0.25}
    assert {stage: found[f"{name}_count", of[stage]] for stage in of} == {"plan": 2.0, "execute": 1.0, "encode": 1.0}


def test_metrics_without_labels_start_at_zero(counters: SharedCounters) -> None:
    """A graph of something that has not happened yet is a line at zero."""
    names = {name for name, _ in shown(counters)}
    for metric in METRICS:
        own = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        assert (own in names) == (not metric.labels)


def test_two_workers() -> None:
    """Gauges are summed; those of a process are shown for each worker."""
    kept = {(metrics.STREAMS.name,): [7.0]}
    per_worker = {
        (metrics.POOL_CONNECTIONS.name, "idle"): {1: [2.0], 4: [3.0]},
        (metrics.RESIDENT.name,): {1: [1e6], 4: [2e6]},
    }
    text = expose(Figures(kept, per_worker, 2)).text.decode()
    found = samples(parser.text_string_to_metric_families(text))
    assert found[metrics.STREAMS.name, ()] == 7.0
    assert found[metrics.POOL_CONNECTIONS.name, (("state", "idle"),)] == 5.0
    assert found[metrics.RESIDENT.name, (("worker", "1"),)] == 1e6
    assert found[metrics.RESIDENT.name, (("worker", "4"),)] == 2e6
    assert found[metrics.WORKERS.name, ()] == 2.0


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"])
def test_the_text_format(counters: SharedCounters, accept: str) -> None:
    assert expose(counters.read(), accept).media_type == TEXT


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5",
        "application/openmetrics-text",
        "application/openmetrics-text; version=nonsense",
    ],
)
def test_openmetrics(counters: SharedCounters, meter: Meter, accept: str) -> None:
    """It has the same values, and its strict parser accepts it."""
    meter.request("/{collection}", "GET", 200, 0.004, 100)
    meter.add(metrics.DATABASE_ERRORS, "23", 'a "quoted\\ and\nbroken" name')
    figures = counters.read()
    exposed = expose(figures, accept)
    text = exposed.text.decode()
    assert exposed.media_type == OPENMETRICS
    assert text.endswith("# EOF\n")
    plain = expose(figures).text.decode()
    found = samples(openmetrics_parser.text_string_to_metric_families(text))
    assert found == samples(parser.text_string_to_metric_families(plain))
    assert found[metrics.DATABASE_ERRORS.name, (("error", 'a "quoted\\ and\nbroken" name'), ("sqlstate", "23"))] == 1.0
