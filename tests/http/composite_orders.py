"""Concurrent writes of resources whose ids and keys have several columns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.http.people import document, linked, of
from tests.http.write_orders import MODES, Scene, Write, maybe, operations, some, to

LINES = ["1,tea", "1,a\\,b", "2,tea", "2,a\\,b"]
LABELS = ["at,1", "a\\,t,\\\\"]
RETURNS, TAGS, ORDERS = "123", "12", "12"


def shop_write(chance: random.Random) -> Write:
    pick = chance.choice
    line, label, returned, tag = pick(LINES), pick(LABELS), pick(RETURNS), pick(TAGS)
    at_line, at_label = f"/lines/{quote(line, safe='')}", f"/labels/{quote(label, safe='')}"
    lines, labels = of("line", *some(chance, LINES)), of("label", *some(chance, LABELS))
    returns, tags = of("return", *some(chance, RETURNS)), of("tag", *some(chance, TAGS))
    to_line, mark = maybe(chance, "line", LINES), pick("xyz")
    every: list[Callable[[], Write]] = [
        lambda: Write(pick(MODES), f"{at_line}/relationships/labels", {"data": labels}),
        lambda: Write(pick(MODES), f"{at_label}/relationships/lines", {"data": lines}),
        lambda: Write(pick(MODES), f"/tags/{tag}/relationships/lines", {"data": lines}),
        lambda: Write("PATCH", at_line, document("line", {}, id=line, relationships=linked(labels=labels, tags=tags))),
        lambda: Write(pick(MODES), f"{at_line}/relationships/returns", {"data": returns}),
        lambda: Write(pick(MODES), f"{at_line}/relationships/returns", {"data": returns}),
        lambda: Write("PATCH", f"/returns/{returned}/relationships/line", {"data": to_line}),
        lambda: Write("PATCH", f"/returns/{returned}/relationships/line", {"data": to_line}),
        lambda: Write("PATCH", f"/returns/{returned}/relationships/order", {"data": maybe(chance, "order", ORDERS)}),
        lambda: Write(
            "PATCH", f"/returns/{returned}/line", document("line", id=line, relationships=linked(returns=returns))
        ),
        lambda: Write("DELETE", f"/returns/{returned}/line"),
        lambda: Write("DELETE", at_line),
        lambda: Write("DELETE", at_label),
        lambda: Write("POST", f"{at_line}/returns", document("return", {"reason": mark})),
        lambda: Write("POST", "/returns", document("return", {"reason": mark}, relationships=linked(line=to_line))),
        lambda: Write(
            "POST", "/lines", document("line", {"note": mark}, id=f"2,{mark}", relationships=linked(labels=labels))
        ),
        lambda: operations(chance, shop_operation),
        lambda: operations(chance, shop_operation),
    ]
    return pick(every)()


def shop_operation(chance: random.Random) -> Any:
    pick = chance.choice
    line, label, ops = pick(LINES), pick(LABELS), ("add", "update", "remove")
    lines, labels = of("line", *some(chance, LINES)), of("label", *some(chance, LABELS))
    to_line, returns = maybe(chance, "line", LINES), of("return", *some(chance, RETURNS))
    return pick(
        [
            {"op": pick(ops), "ref": to("line", line, "labels"), "data": labels},
            {"op": pick(ops), "ref": to("label", label, "lines"), "data": lines},
            {"op": pick(ops), "ref": to("line", line, "returns"), "data": returns},
            {"op": "update", "ref": to("return", pick(RETURNS), "line"), "data": to_line},
            {"op": "update", "data": document("line", {"quantity": 9}, id=line)["data"]},
            {"op": "remove", "ref": {"type": "line", "id": line}},
        ]
    )


SHOP = Scene(
    fill=r"""
    TRUNCATE shop.orders, shop.lines, shop.checks, shop.returns, shop.labels, shop.tags, shop.line_labels,
        shop.line_tags RESTART IDENTITY;
    INSERT INTO shop.orders (name) VALUES ('o'), ('p');
    INSERT INTO shop.lines (order_id, product) VALUES (2, 'a,b'), (2, 'tea'), (1, 'tea'), (1, 'a,b');
    INSERT INTO shop.returns (reason, order_id, product) VALUES ('r', 1, 'tea'), ('s', 2, 'a,b'), ('t', NULL, NULL);
    INSERT INTO shop.labels VALUES ('at', '1', 'l'), ('a,t', '\', 'm');
    INSERT INTO shop.tags (name) VALUES ('t'), ('u');
    INSERT INTO shop.line_labels VALUES (1, 'tea', 'at', '1'), (2, 'a,b', 'a,t', '\');
    INSERT INTO shop.line_tags VALUES (1, 1, 'tea'), (2, 1, 'tea');
    ALTER SEQUENCE shop.returns_id_seq RESTART 1000;
    """,
    tables=("shop.orders", "shop.lines", "shop.returns", "shop.labels", "shop.line_labels", "shop.line_tags"),
    held=(
        *(
            f"shop.lines WHERE order_id = {order} AND product = '{product}'"
            for order in ORDERS
            for product in ("tea", "a,b")
        ),
        *(f"shop.labels WHERE country = '{country}'" for country in ("at", "a,t")),
        *(f"shop.returns WHERE id = {number}" for number in RETURNS),
        "shop.line_labels WHERE country = 'at'",
        "shop.orders WHERE id = 1",
        "shop.tags WHERE id = 1",
    ),
    writes=shop_write,
)
