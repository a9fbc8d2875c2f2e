"""Compound documents: each included resource once per (type, id), in the order in which it is first seen, with full
linkage."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.planning import document, read_collection, read_resource


def linkage(found: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the linkage of all resources of the document: (type, id) -> relationship -> ids."""
    primary = found["data"] if isinstance(found["data"], list) else [found["data"]]
    return {
        (resource["type"], resource["id"]): {
            name: _ids(relationship["data"])
            for name, relationship in resource.get("relationships", {}).items()
            if "data" in relationship
        }
        for resource in (*primary, *found.get("included", []))
    }


def _ids(data: Any) -> Any:
    if isinstance(data, list):
        return [identifier["id"] for identifier in data]
    return None if data is None else data["id"]


def test_full_linkage_and_each_resource_once() -> None:
    """Articles a and b of author 1 have tags. The tags of b are also those of a, and are included once, in the order in
    which they are first seen."""
    planned = read_collection(
        "article", "include=tags,author&fields[article]=tags,author&fields[author]=&fields[tag]=name"
    )
    # rows of the branches in declared order: author, then tags
    found = document(
        planned,
        [
            [("b", 1), ("a", 1), ("c", 2)],
            [(1,), (2,)],
            [(7, "x", "a"), (8, "y", "a"), (7, "x", "b"), (9, "z", "b")],
        ],
    )
    assert linkage(found) == {
        ("article", "b"): {"author": "1", "tags": ["7", "9"]},
        ("article", "a"): {"author": "1", "tags": ["7", "8"]},
        ("article", "c"): {"author": "2", "tags": []},
        ("author", "1"): {},
        ("author", "2"): {},
        ("tag", "7"): {},
        ("tag", "9"): {},
        ("tag", "8"): {},
    }
    assert [(resource["type"], resource["id"]) for resource in found["included"]] == [
        ("author", "1"),
        ("author", "2"),
        ("tag", "7"),
        ("tag", "9"),
        ("tag", "8"),
    ]


def test_an_empty_to_one_and_one_whose_row_is_missing() -> None:
    planned = read_collection("article", "include=editor&fields[article]=editor&fields[author]=")
    found = document(planned, [[("a", None), ("b", 2)], [(2,)]])
    assert linkage(found) == {
        ("article", "a"): {"editor": None},
        ("article", "b"): {"editor": "2"},
        ("author", "2"): {},
    }
    reverse = read_collection("author", "include=desk&fields[author]=desk&fields[desk]=room")
    found = document(reverse, [[(1,), (2,)], [(5, "r", 2)]])
    assert linkage(found) == {("author", "1"): {"desk": None}, ("author", "2"): {"desk": "5"}, ("desk", "5"): {}}


NODES = {number: UUID(int=number) for number in range(1, 5)}


def test_primary_resources_are_not_included() -> None:
    """1 is the parent of 2, and both are primary: nothing is included, and the linkage is complete."""
    planned = read_collection("node", "include=parent,children&fields[node]=parent,children")
    one, two = NODES[1], NODES[2]
    found = document(planned, [[(one, None), (two, one)], [(one,)], [(two, one)]])
    assert found["included"] == []
    assert linkage(found) == {
        ("node", str(one)): {"parent": None, "children": [str(two)]},
        ("node", str(two)): {"parent": str(one), "children": []},
    }


def test_a_resource_in_two_places_is_one_object_with_the_linkage_of_both() -> None:
    """3 is the child of 2 and the parent of 4. As a child it shows its children, as a parent it shows its parent."""
    planned = read_collection(
        "node", "include=children.children,parent.parent&fields[node]=parent,children&filter[id][isnot]=null"
    )
    two, three, four, one = NODES[2], NODES[3], NODES[4], NODES[1]
    parents = [(three, two)]
    parents_of_parents = [(two,)]
    children = [(three, two)]
    children_of_children = [(four, three)]
    found = document(
        planned,
        [[(two, one), (four, three)], [(one, None), *parents], parents_of_parents, children, children_of_children],
    )
    assert linkage(found) == {
        ("node", str(two)): {"parent": str(one), "children": [str(three)]},
        ("node", str(four)): {"parent": str(three), "children": []},
        ("node", str(one)): {"parent": None},
        ("node", str(three)): {"parent": str(two), "children": [str(four)]},
    }
    included = [resource["id"] for resource in found["included"]]
    assert sorted(included) == sorted([str(one), str(three)])


def test_linkage_of_a_write_includes_no_resources() -> None:
    planned = read_resource("article", "fields[article]=author,tags", written=("author", "tags"))
    found = document(planned, [[("a", 1)], [], [(7, "a"), (8, "a")]])
    assert "included" not in found
    assert linkage(found) == {("article", "a"): {"author": "1", "tags": ["7", "8"]}}
