"""The files for Prometheus and Grafana in deploy/ only use existing metrics and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.observing.metrics import METRICS
from server.resources import built_in
from tests.http.conftest import Start
from tests.http.running.test_metrics import read

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana.json"
RULES = DEPLOY / "prometheus-rules.yml"
OF_PROMETHEUS = {"job", "instance", "le"}


def expressions(of: Any) -> Iterator[str]:
    """Yield the expressions of a dashboard, with the names of their results, including those of its variables."""
    for panel in of["panels"]:
        yield from (f"{target['expr']} {target.get('legendFormat', '')}" for target in panel.get("targets", []))
    yield from (variable["query"]["query"] for variable in of["templating"]["list"] if variable["type"] == "query")


def dashboard() -> str:
    return "\n".join(expressions(json.loads(DASHBOARD.read_text())))


def rules() -> str:
    return "\n".join(line for line in RULES.read_text().splitlines() if not line.lstrip().startswith("#"))


def named(text: str) -> set[str]:
    return set(re.findall(r"waterspout_[a-z_]+", text))


def labels(text: str) -> set[str]:
    """Return the labels that are selected, grouped by or shown."""
    grouped = [name.strip() for group in re.findall(r"\bby \(([^)]*)\)", text) for name in group.split(",")]
    return {
        *re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", text),
        *grouped,
        *re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)", text),
    }


@pytest.mark.parametrize("text", [dashboard(), rules()], ids=["dashboard", "rules"])
async def test_each_metric_is_in_a_scrape(start: Start, database_url: str, text: str) -> None:
    api = await start(database_url, built_in(), idempotency="on")
    await api.get("/users?page[size]=2")
    group = {"data": {"type": "group", "attributes": {"name": "a"}}}
    sent = [await api.request("POST", "/groups", group, headers={"Idempotency-Key": key}) for key in "ab"]
    assert [answer.status for answer in sent] == [201, 409]
    scraped = {f"waterspout_{name}" for name in read((await api.get("/-/metrics")).body.decode())}
    assert len(named(text)) > 5
    assert named(text) - scraped == set()


@pytest.mark.parametrize("text", [dashboard(), rules()], ids=["dashboard", "rules"])
def test_labels(text: str) -> None:
    own = {label for metric in METRICS if metric.name in text for label in metric.labels}
    assert labels(text) - {"severity"} <= own | OF_PROMETHEUS


def test_every_metric_is_on_the_dashboard() -> None:
    missing = {
        metric.name for metric in METRICS if not re.search(rf"{metric.name}(_bucket|_sum|_count)?\b", dashboard())
    }
    assert missing == set()


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    taken = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) == 23


def test_ids_are_unique() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
