"""The start says where sessions of the server have another time zone or interval style than those of the database."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import pytest

from server.resources import built_in
from server.settings import Settings
from server.startup.declarations import Declarations
from server.startup.start import prepare_database
from tests.conftest import on_server

SAID = "sessions of the server have UTC and iso_8601, also for views, defaults and triggers"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"timezone": "UTC"}, None),
        ({"timezone": "Etc/UTC", "intervalstyle": "iso_8601"}, None),
        ({"timezone": "Europe/Berlin"}, "time zone is Europe/Berlin"),
        (
            {"timezone": "Asia/Kolkata", "intervalstyle": "sql_standard"},
            "time zone is Asia/Kolkata, interval style is sql_standard",
        ),
    ],
)
def test_other_values_are_said(
    database_url: str, caplog: pytest.LogCaptureFixture, values: dict[str, str], said: str | None
) -> None:
    name = urlsplit(database_url).path.removeprefix("/")
    on_server(database_url, *[f"ALTER DATABASE \"{name}\" SET {one} = '{value}'" for one, value in values.items()])
    with caplog.at_level(logging.INFO, "server"):
        asyncio.run(prepare_database(database_url, Settings(database_url=database_url), Declarations(built_in())))
    lines = [record.getMessage() for record in caplog.records if SAID in record.getMessage()]
    assert lines == ([] if said is None else [f"the database's {said}; {SAID}"])
