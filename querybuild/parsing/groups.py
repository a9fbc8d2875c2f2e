"""Parses the parameters of groups: `groupBy`, `aggregateAs`, `groupFilter`, `timeZone`. What comes in: their texts.
What goes out: a GroupQuery whose names are not resolved.

It must not know: resources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from querybuild.declarations.database_types.json_paths import path_fault, split_names
from querybuild.errors import GroupError, ParameterError, nearest, quoted
from querybuild.filters import FilterReader
from querybuild.query import AGGREGATES, PERIODS, Aggregate, GroupKey, GroupQuery

GROUP_BY, AGGREGATE_AS, GROUP_FILTER, TIME_ZONE = GROUPING = ("groupBy", "aggregateAs", "groupFilter", "timeZone")
"""The parameters of groups."""

MAX_COLUMNS = 32
"""How many keys and how many numbers the groups of one request have at most."""

Parameter = tuple[str, tuple[str, ...], str]
"""A parameter: its name as sent, the keys in its brackets, its value."""

_CALL = re.compile(r"(?P<function>[^()]*)\((?P<of>[^()]*)\)")
_MEMBER = re.compile(r"[a-zA-Z0-9\u0080-\U0010ffff](?:[-_ a-zA-Z0-9\u0080-\U0010ffff]*[a-zA-Z0-9\u0080-\U0010ffff])?")
"""A member name of JSON:API, "Member Names"."""


def parse_groups(families: Mapping[str, Sequence[Parameter]], reader: FilterReader) -> GroupQuery | None:
    """Parse the parameters of groups. families: all parameters of the request, by their families. Returns None if it
    asks for no groups. Appends to the errors of the reader."""
    sent_by, text, zone = [_single(families[name], reader) for name in (GROUP_BY, GROUP_FILTER, TIME_ZONE)]
    if not (families[GROUP_BY] or families[AGGREGATE_AS]):
        for name in (GROUP_FILTER, TIME_ZONE):
            for sent, _, _ in families[name]:
                detail = f"{quoted(name)} is for groups: ask for them by {quoted(GROUP_BY)} or {quoted(AGGREGATE_AS)}."
                reader.errors.append(ParameterError(detail, parameter=sent))
        return None
    by = _keys(sent_by, reader)
    aggregates = _aggregates(families[AGGREGATE_AS], [key.name for key in by], reader)
    filters = () if text is None else reader.full(GROUP_FILTER, text)
    return GroupQuery(by, aggregates, filters, zone, 0 if zone is None else reader.next_index())


def _single(parameters: Sequence[Parameter], reader: FilterReader) -> str | None:
    """Return the value of a parameter that has no brackets and occurs once."""
    for name, keys, _ in parameters:
        if keys:
            reader.errors.append(ParameterError(f"There is no parameter {quoted(name)}.", parameter=name))
    for name, _, _ in parameters[1:]:
        reader.errors.append(ParameterError("It occurs more than once.", parameter=name))
    return parameters[0][2] if parameters else None


def _keys(text: str | None, reader: FilterReader) -> tuple[GroupKey, ...]:
    keys: dict[str, GroupKey] = {}
    for name in split_names(text, ",") if text is not None else ():
        call = _CALL.fullmatch(name)
        function, path = ("", name) if call is None else (call["function"], call["of"])
        if why := path_fault(path):
            _refuse(reader, GROUP_BY, "A key is empty." if not name else f"{quoted(name)} {why}.")
        elif call is not None and function not in PERIODS:
            known = ", ".join(f"{period}(...)" for period in PERIODS)
            detail = f"{quoted(name)}: there is no function {quoted(function)}.{nearest(function, PERIODS)}"
            _refuse(reader, GROUP_BY, f"{detail} There are: {known}.")
        elif name in keys:
            _refuse(reader, GROUP_BY, f"{quoted(name)} occurs more than once.")
        else:
            keys[name] = GroupKey(name, path, function)
    if len(keys) > MAX_COLUMNS:
        _refuse(reader, GROUP_BY, f"at most {MAX_COLUMNS} keys are allowed.")
    return tuple(keys.values())


def _aggregates(parameters: Sequence[Parameter], keys: Sequence[str], reader: FilterReader) -> tuple[Aggregate, ...]:
    aggregates: dict[str, Aggregate] = {}
    for parameter, names, text in parameters:
        name = names[0] if len(names) == 1 else ""
        call = _CALL.fullmatch(text)
        function = "" if call is None else call["function"].strip()
        of = "" if call is None else call["of"].strip()
        is_distinct = function == "count" and of.startswith("distinct ")
        of = of.removeprefix("distinct ").strip() if is_distinct else of
        if not name:
            _refuse(reader, parameter, f"A number of each group has a name: {AGGREGATE_AS}[name]=count().")
        elif _MEMBER.fullmatch(name) is None:
            _refuse(reader, parameter, f"{quoted(name)} is no member name of JSON:API.")
        elif name == "by" or name in keys:
            _refuse(reader, parameter, f"The name {quoted(name)} is that of a key of the groups: choose another.")
        elif name in aggregates:
            _refuse(reader, parameter, "It occurs more than once.")
        elif function not in AGGREGATES:
            known = ", ".join(f"{aggregate}(...)" for aggregate in AGGREGATES)
            detail = f"Expected a function of an attribute, such as sum(age), not {quoted(text)}."
            _refuse(reader, parameter, f"{detail}{nearest(function or text, AGGREGATES)} There are: {known}.")
        elif not of and function != "count":
            _refuse(reader, parameter, f"{quoted(function)} needs an attribute: {function}(attribute).")
        elif of and (why := path_fault(of)):
            _refuse(reader, parameter, f"{quoted(of)} {why}.")
        else:
            aggregates[name] = Aggregate(name, function, of, is_distinct, parameter)
    if len(aggregates) > MAX_COLUMNS:
        _refuse(reader, AGGREGATE_AS, f"at most {MAX_COLUMNS} numbers are allowed.")
    return tuple(aggregates.values())


def _refuse(reader: FilterReader, parameter: str, detail: str) -> None:
    reader.errors.append(GroupError(detail, parameter=parameter))
