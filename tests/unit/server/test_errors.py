"""Exceptions as error documents: which errors an answer contains, and how many."""

from __future__ import annotations

import json

from querybuild.errors import MAX_ERRORS, AttributeFault, BadRequest, ParameterError, Several, TypeConflict
from server.error_answers import answer
from server.errors import causes


def test_several_errors_of_one_status() -> None:
    made = answer(Several([AttributeFault("a", pointer="/data"), AttributeFault("b", pointer="")]), "r")
    document = json.loads(made.body)
    assert (made.status, made.is_fault) == (422, False)
    assert [(error["id"], error["status"], error["detail"]) for error in document["errors"]] == [
        ("r.1", "422", "a"),
        ("r.2", "422", "b"),
    ]


def test_the_first_hundred_are_reported() -> None:
    """The status is that of the reported errors; others do not count."""
    faults = [AttributeFault(str(number), pointer="") for number in range(MAX_ERRORS)]
    full = answer(Several(faults), "r")
    more = answer(Several([*faults, TypeConflict("one more", pointer=""), BadRequest("and one more")]), "r")
    assert MAX_ERRORS == 100
    assert [error["detail"] for error in json.loads(full.body)["errors"]] == [str(number) for number in range(100)]
    assert more == full


def test_different_statuses_are_a_400() -> None:
    made = answer(Several([AttributeFault("a", pointer=""), TypeConflict("b", pointer="")]), "r")
    assert made.status == 400
    assert [error["status"] for error in json.loads(made.body)["errors"]] == ["422", "409"]


def test_a_single_error_has_its_own_status() -> None:
    made = answer(ParameterError("a", parameter="sort"), "r")
    assert (made.status, len(json.loads(made.body)["errors"])) == (400, 1)


def test_a_cycle_of_causes_ends() -> None:
    """Custom code can raise an error that is its own cause."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert list(causes(first)) == [first, second]
    assert list(causes(None)) == []
    own = ValueError("c")
    own.__cause__ = own
    assert list(causes(own)) == [own]
