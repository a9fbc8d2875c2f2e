"""The table of all shortcuts: what each of them knows of each field of the values that it is given.

A field that a shortcut does not use, and that is not of no matter to it, must have its default, or the shortcut steps
aside. So a new field is refused everywhere until somebody has thought of it, and this table fails until it says so.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace

import querybuild
import server
from querybuild.planning import write_plan_cache
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context
from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.planning.reads import counting, fetching, list_names, stream_plan
from querybuild.planning.row_plan import Rows
from querybuild.planning.writes import uniform
from querybuild.planning.writes.write_plan import LinkWrite, WritePlan
from querybuild.query import Change, Identifier, LinkageChange, Query
from querybuild.shortcuts import Knows
from querybuild.sql.writes import answered, bulk, modify, pipelined_links
from server.execution.writes import batches
from server.preparing import reads, typed_writes, views
from server.preparing.writes import PreparedWrite

TABLE: dict[type[msgspec.Struct], tuple[dict[str, Knows], str]] = {
    Query: (
        {"list_name": list_names.QUERY},
        """
             list_name
    filter   used
    sort     used
    page     ignored
    include  ignored
    fields   ignored
    choices  ignored
    groups   used
    search   used
    near     ignored
    form     ignored
    """,
    ),
    Context: (
        {"cached": views.CONTEXT},
        """
               cached
    access     used
    values     used
    principal  ignored
    """,
    ),
    Change: (
        {"form": write_plan_cache.CHANGE, "typed": typed_writes.ASKED},
        """
                   form     typed
    kind           used     used
    type           used     used
    id             used     used
    lid            ignored  refused
    attributes     used     refused
    relationships  used     refused
    undecoded      refused  refused
    assigned       refused  refused
    owner          refused  refused
    pointer        ignored  refused
    id_pointer     ignored  refused
    match          refused  refused
    on_conflict    used     refused
    bulk           refused  refused
    """,
    ),
    LinkageChange: (
        {"form": write_plan_cache.LINKAGE},
        """
                  form
    identifiers   used
    is_list       used
    pointer       ignored
    mode          used
    name_pointer  ignored
    """,
    ),
    Identifier: (
        {"form": write_plan_cache.IDENTIFIER},
        """
             form
    type     used
    id       used
    pointer  ignored
    lid      used
    """,
    ),
    PreparedWrite: (
        {"single": batches.PREPARED},
        """
                single
    resource    used
    change      used
    planned     used
    related     refused
    path_id     ignored
    looked_for  refused
    bulk        refused
    """,
    ),
    PlannedWrite: (
        {"form": write_plan_cache.PLANNED, "single": batches.PLANNED, "batch": batches.REPEATED},
        """
                   form     single   batch
    plan           used     used     used
    values         used     used     used
    has_lids       used     ignored  used
    places         used     ignored  ignored
    item_pointers  used     ignored  ignored
    pointer        used     ignored  ignored
    id_pointer     used     ignored  ignored
    agreements     refused  refused  refused
    """,
    ),
    WritePlan: (
        {
            "form": write_plan_cache.PLAN,
            "row": modify.OF_ROW,
            "creates": modify.CREATES,
            "pipelined": pipelined_links.PLAN,
            "bulk": bulk.OF_ROWS,
            "uniform": uniform.UNIFORM,
            "answered": answered.ANSWERED,
        },
        """
                  form     row      creates  pipelined  bulk     uniform  answered
    kind          used     used     used     used       used     used     used
    rows          used     used     used     used       used     used     used
    id_slot       used     used     used     used       used     used     used
    assignments   used     used     used     refused    used     used     used
    links         used     refused  refused  used       refused  refused  refused
    precondition  refused  used     refused  refused    refused  refused  used
    linkage       refused  refused  refused  refused    refused  refused  refused
    kept          used     refused  refused  refused    refused  refused  refused
    implied       used     refused  refused  refused    refused  refused  refused
    owner         refused  refused  refused  refused    refused  refused  refused
    checked       used     used     refused  refused    used     used     used
    conflict      used     used     refused  refused    refused  refused  refused
    """,
    ),
    LinkWrite: (
        {"pipelined": pipelined_links.LINK},
        """
                     pipelined
    resource         used
    relationship     used
    rows             used
    slot             used
    mode             used
    is_detachable    used
    is_target_first  ignored
    visible          refused
    checked          refused
    emptied          used
    kept             used
    criteria         refused
    assigned         refused
    """,
    ),
    Rows: (
        {
            "joined": fetching.JOINED,
            "united": fetching.UNITED,
            "chosen": fetching.UNITED_CHOICE,
            "stream": stream_plan.PRIMARY,
            "stream_included": stream_plan.RELATED,
            "counted": counting.COUNTED,
            "keys": counting.KEYS,
            "returned": reads.RETURNED_ROWS,
        },
        """
                joined   united   chosen   stream   stream_included  counted  keys     returned
    resource    used     used     used     used     used             used     used     used
    alias       used     used     used     used     used             used     used     used
    parent      used     used     used     refused  used             refused  used     refused
    pair        used     used     used     refused  used             refused  used     refused
    through     refused  used     used     refused  used             refused  refused  refused
    criteria    used     used     used     used     used             used     used     used
    rights      refused  refused  refused  refused  refused          refused  refused  refused
    conditions  refused  refused  used     used     used             used     used     used
    joins       refused  refused  used     used     used             ignored  refused  refused
    order       refused  refused  used     used     used             ignored  refused  refused
    limit       refused  refused  refused  used     refused          ignored  refused  refused
    offset      refused  refused  refused  used     refused          ignored  refused  refused
    keyset      refused  refused  refused  used     refused          ignored  refused  refused
    grouping    refused  refused  refused  refused  refused          refused  refused  refused
    nearest     refused  refused  refused  refused  refused          refused  refused  refused
    is_counted  refused  refused  refused  refused  refused          refused  refused  refused
    """,
    ),
    Branch: (
        {"united": fetching.BRANCH, "chosen": fetching.CHOSEN_BRANCH, "stream": stream_plan.BRANCH},
        """
                  united   chosen  stream
    relationship  used     used    used
    node          used     used    used
    is_included   used     used    used
    fetch         used     used    used
    choice        refused  used    used
    """,
    ),
    Node: (
        {"stream": stream_plan.NODE, "answered": answered.SHOWN},
        """
                   stream  answered
    rows           used    used
    read           used    used
    attributes     used    used
    computed       used    used
    relationships  used    ignored
    keys           used    used
    branches       used    ignored
    targets        used    refused
    version        used    used
    """,
    ),
    ReadPlan: (
        {"stream": stream_plan.READ, "returned": reads.RETURNED},
        """
                      stream   returned
    node              used     used
    data              used     used
    included          used     used
    total             used     refused
    scope             used     refused
    has_cursors       used     refused
    has_far_offset    used     refused
    usual_limit       used     refused
    counted_by        used     refused
    first_rows        used     refused
    columns           used     refused
    """,
    ),
}
"""For each kind of value its shortcuts, and what they know of each of its fields.

used: the shortcut does what the field asks for, or has it in its key.
ignored: the field changes nothing of what the shortcut does.
refused: the shortcut steps aside unless the field has its default.
"""


def all_shortcuts() -> list[tuple[type[msgspec.Struct], str, Knows]]:
    return [(of, name, knows) for of, (shortcuts, _) in TABLE.items() for name, knows in shortcuts.items()]


def word_of(field: str, knows: Knows) -> str:
    return "used" if field in knows.used else "ignored" if field in knows.ignored else "refused"


@pytest.mark.parametrize("of", TABLE, ids=lambda of: of.__name__)
def test_the_table_has_each_field_as_its_shortcuts_know_it(of: type[msgspec.Struct]) -> None:
    shortcuts, text = TABLE[of]
    assert all(knows.of is of for knows in shortcuts.values())
    head, *rows = [line.split() for line in text.strip().splitlines()]
    assert head == [*shortcuts]
    known = [[field, *[word_of(field, knows) for knows in shortcuts.values()]] for field in of.__struct_fields__]
    assert rows == known


def test_the_table_has_all_shortcuts() -> None:
    """Wherever they are: no list of modules can forget one."""
    packages = [querybuild, server]
    names = [one.name for package in packages for one in walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [import_module(name) for name in names if not name.endswith("__main__")]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Knows)]
    assert len(modules) > 200
    named = [knows for _, _, knows in all_shortcuts()]
    assert {id(knows) for knows in found} == {id(knows) for knows in named}


class Value(msgspec.Struct, frozen=True):
    first: int = 1
    second: tuple[int, ...] = ()
    third: dict[str, int] = {}
    fourth: int | None = None


@pytest.mark.parametrize(
    ("used", "ignored", "changed", "takes"),
    [
        ([], [], {}, True),
        (["first"], [], {"first": 2}, True),
        ([], ["first"], {"first": 2}, True),
        (["first"], ["second"], {"first": 2, "second": (1,)}, True),
        (["first"], [], {"second": (1,)}, False),
        (["first", "second"], [], {"third": {"a": 1}}, False),
        (["first", "second", "third"], [], {"fourth": 0}, False),
        (["first", "second", "third"], [], {"third": {"a": 1}}, True),
        ([*Value.__struct_fields__], [], {"first": 2, "fourth": 1}, True),
    ],
)
def test_a_shortcut_takes_what_it_knows(
    used: list[str], ignored: list[str], changed: dict[str, Any], takes: bool
) -> None:
    knows, value = Knows(Value, used=used, ignored=ignored), replace(Value(), **changed)
    assert (knows.takes(value), knows.takes_all([Value(), value])) == (takes, takes)


def test_a_field_without_a_default_has_to_be_known() -> None:
    class Named(msgspec.Struct, frozen=True):
        name: str
        count: int = 0

    assert not Knows(Named, used=["count"]).takes(Named("a"))
    assert Knows(Named, used=["name"]).takes(Named("a"))


def test_a_shortcut_knows_only_fields_that_there_are() -> None:
    with pytest.raises(TypeError, match="Value has no fifth, sixth"):
        Knows(Value, used=["first", "sixth"], ignored=["fifth"])


@pytest.mark.parametrize(("of", "name", "knows"), all_shortcuts(), ids=lambda one: one if isinstance(one, str) else "")
def test_a_new_field_is_refused(of: type[msgspec.Struct], name: str, knows: Knows) -> None:
    """The capability of tomorrow: a field that no shortcut has heard of."""
    new = [("tomorrow", int | None, None)]
    later = msgspec.defstruct("Later", [*_declared(of), *new], frozen=True, kw_only=True)
    value = later(**{field.name: _any_value(field) for field in fields(of) if field.name in knows.used | knows.ignored})
    same = Knows(later, used=knows.used, ignored=knows.ignored)
    assert same.takes(value)
    assert not same.takes(replace(value, tomorrow=1))


def _declared(of: type[msgspec.Struct]) -> list[Any]:
    return [(field.name, Any, _any_value(field)) for field in fields(of)]


def _any_value(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
