"""If the context hides rows, every page and every file is byte for byte that of a server whose database does not have
them."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlencode

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.property.filters import filters, sorts
from tests.property.test_hidden_rows import HEADERS, Pair, asked, chosen_includes, pages, pair
from tests.property.wild import quote_all

__all__ = ["pair"]

TIMES = re.compile(rb"<dt>Time of the stages</dt>\s*<dd>[^<]*</dd>")
BROWSER = (*HEADERS, ("Accept", "text/html"))


def check(pair: Pair, target: str) -> int:
    """Check that both servers give the same answer, but for the times of stages. Return its status."""
    answers = [server.raw("GET", target.encode(), BROWSER) for server in (pair.hiding, pair.bare)]
    hiding, bare = [(answer.status, TIMES.sub(b"", answer.body)) for answer in answers]
    assert hiding == bare, target
    assert hiding[0] < 500, target
    return hiding[0]


def test_the_page_of_every_row(pair: Pair) -> None:
    """Each resource, hidden or not, its relationships and its related resources, and the links of a to-many."""
    statuses = set()
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        for row in pair.rows[type_name]:
            path = f"{resource.path}/{quote_all(str(row['id']))}"
            statuses.add(check(pair, path))
            for one in resource.relationships:
                check(pair, f"{path}/{one.name}")
                check(pair, f"{path}/relationships/{one.name}")
                if one.is_to_many:
                    for words in ("", "a", "e"):
                        check(pair, f"/-/pages/links{path}/{one.name}?words={words}")
    assert statuses == {200, 404}


def test_facets(pair: Pair) -> None:
    for type_name in pair.types:
        assert check(pair, f"/-/pages/facets{pair.catalog.by_type[type_name].path}") == 200


@given(data=st.data())
def test_lists(pair: Pair, data: DataObject) -> None:
    """As pages and as files."""
    type_name = data.draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    pairs = [("filter", json.dumps([data.draw(filters(type_name, pair.rows))]))] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        pairs.append(("sort", data.draw(sorts(type_name))))
    for answer in ("csv", "ndjson"):
        check(pair, f"{resource.path}?{urlencode([*pairs, ('answerAs', answer)], quote_via=quote)}")
    if data.draw(st.booleans()):
        pairs += chosen_includes(pair, resource, data)
    pairs += data.draw(pages)
    check(pair, f"{resource.path}?{urlencode(pairs, quote_via=quote)}")


@given(data=st.data())
def test_groups(pair: Pair, data: DataObject) -> None:
    type_name = data.draw(st.sampled_from(pair.types))
    one = data.draw(asked(pair.catalog, type_name))
    path = pair.catalog.by_type[type_name].path
    assert check(pair, f"{path}?{urlencode([*one.pairs, ('page[size]', '1000')], quote_via=quote)}") == 200
