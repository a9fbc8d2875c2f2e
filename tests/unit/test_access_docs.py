"""The examples of docs/access.md are valid declarations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import waterspout
from querybuild.planning.context import View
from querybuild.planning.rules import read_rules
from waterspout import Catalog, Resource, ToMany, ToOne

PAGE = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
CODES = [code for code in re.findall(r"^```python\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL) if "Allow(" in code]
FILES, EXAMPLES = [[one for one in CODES if ("CATALOG" in one) is is_file] for is_file in (True, False)]
TEAM = (ToOne("leader", "user"), ToMany("members", "user", foreign_key="team_id"))
OTHERS = [Resource("user", "/users", "users"), Resource("team", "/teams", "teams", relationships=TEAM)]


@pytest.mark.parametrize("code", EXAMPLES, ids=[code[:20] for code in EXAMPLES])
def test_examples_of_rules(code: str) -> None:
    before, _, last = code.rpartition("Resource(\n")
    names: dict[str, Any] = {}
    exec(f"from waterspout import *\n{before}RESOURCE = Resource(\n{last}", names)
    assert read_rules(View(Catalog([names["RESOURCE"], *OTHERS]))) is not None
    assert waterspout.Resource is names["Resource"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 5
