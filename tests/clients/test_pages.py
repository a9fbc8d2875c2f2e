"""The pages for people in a real Chromium. Only `make test-clients` runs this test. With WATERSPOUT_PICTURES it saves
what it sees there; those of `docs/pictures` are 1,024 pixels wide, and `list.png` is that of `related`."""

from __future__ import annotations

import pytest

from tests.clients.test_clients import HERE, node, passes, server
from tests.clients.test_openapi import browser
from tests.variables import VARIABLES

__all__ = ["browser", "node", "server"]

pytestmark = pytest.mark.clients


def test_the_pages(node: str, browser: str, server: str) -> None:
    """Every journey with and without JavaScript, by keyboard, in all widths and schemes."""
    passes(node, HERE / "pages.mjs", server, browser, VARIABLES.get("WATERSPOUT_PICTURES", ""))
