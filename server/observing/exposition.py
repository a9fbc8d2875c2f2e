"""Formats the metrics for Prometheus.

What comes in: the figures of all workers. What goes out: text in Prometheus' format, or in that of OpenMetrics. These
differ in the names of counters and in the last line.

The Prometheus client library takes 20 to 40 milliseconds for the 3,500 lines of a server that has answered on all
routes, and all requests wait meanwhile. This module takes 2 milliseconds.

It must not know: how and where the figures are counted.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from server.observing.metrics import METRICS, WORKERS, Metric
from server.observing.shared_counters import Figures, RowKey
from server.routes import OPENMETRICS, TEXT

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = tuple[str, ...]
Values = list[tuple[Labels, list[float]]]


class Exposition(msgspec.Struct, frozen=True):
    """The metrics as text, with the media type."""

    text: bytes
    media_type: str


def expose(figures: Figures, accept: str = "") -> Exposition:
    """Format the figures. accept: the header of the request."""
    is_openmetrics = "application/openmetrics-text" in accept
    by_name = _by_name(figures)
    lines: list[str] = []
    for metric in METRICS:
        lines += _head(metric, is_openmetrics)
        values = by_name.get(metric.name, [])
        if not values and not metric.labels:
            values = [((), [0.0] * metric.count)]
        for labels, numbers in values:
            lines += (
                _histogram(metric, labels, numbers) if metric.kind == "histogram" else _value(metric, labels, numbers)
            )
    if is_openmetrics:
        lines.append("# EOF\n")
    return Exposition("".join(lines).encode(), OPENMETRICS if is_openmetrics else TEXT)


def _by_name(figures: Figures) -> dict[str, Values]:
    """Return the labels and numbers of each metric, sorted by label."""
    values: dict[str, Values] = {WORKERS.name: [((), [float(figures.workers)])]}
    metrics = {metric.name: metric for metric in METRICS}
    for (name, *labels), numbers in sorted(figures.totals.items()):
        values.setdefault(name, []).append((tuple(labels), numbers))
    for key, of_workers in sorted(figures.per_worker.items()):
        values.setdefault(key[0], []).extend(_running_values(metrics[key[0]], key, of_workers))
    return values


def _running_values(
    metric: Metric, key: RowKey, of_workers: dict[int, list[float]]
) -> Iterable[tuple[Labels, list[float]]]:
    if metric.is_per_worker:
        return [((*key[1:], str(number)), numbers) for number, numbers in sorted(of_workers.items())]
    combine = max if metric.is_info else sum
    return [(key[1:], [combine(column) for column in zip(*of_workers.values(), strict=True)])]


def _head(metric: Metric, is_openmetrics: bool) -> Iterator[str]:
    name = metric.name.removesuffix("_total") if is_openmetrics else metric.name
    yield f"# HELP {name} {metric.help}\n"
    yield f"# TYPE {name} {metric.kind}\n"


def _labelled(names: Sequence[str], values: Labels) -> str:
    """Return `route="/{collection}",method="GET"`."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))


def _value(metric: Metric, labels: Labels, numbers: list[float]) -> list[str]:
    shown = f"{{{_labelled(metric.labels, labels)}}}" if labels else ""
    return [f"{metric.name}{shown} {numbers[0]!r}\n"]


def _histogram(metric: Metric, labels: Labels, numbers: list[float]) -> list[str]:
    """Return the lines of a histogram. Each bucket counts all values at or below its bound."""
    name, shown = metric.name, _labelled(metric.labels, labels)
    comma, braced = ("," if shown else ""), f"{{{shown}}}" if shown else ""
    *counts, total = numbers
    sums = list(accumulate(counts))
    bounds = [*map(repr, metric.bounds), "+Inf"]
    lines = [
        f'{name}_bucket{{{shown}{comma}le="{bound}"}} {count!r}\n' for bound, count in zip(bounds, sums, strict=True)
    ]
    return [*lines, f"{name}_count{braced} {sums[-1]!r}\n", f"{name}_sum{braced} {total!r}\n"]
