"""Says what each shortcut knows of the values that it is given. A shortcut is a faster way through a stage for some of
the values that the stage gets: a plan that is used again, or one statement for several writes.

A shortcut knows some fields of such a value. All others must have their defaults, or the shortcut steps aside and the
stage itself does the work. So no field is lost on a faster way, and a new field is safe before anybody has thought of
it. The table in `tests/unit/querybuild/test_shortcuts.py` shows all shortcuts with all fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import NODEFAULT


class Knows:
    """What a shortcut knows of one kind of value.

    of: the kind of value.
    used: the fields that it does by itself what they ask for, or that are in its key.
    ignored: the fields that change nothing of what it does.
    refused: all others, which must have their defaults.
    """

    def __init__(self, of: type[msgspec.Struct], *, used: Iterable[str], ignored: Iterable[str] = ()) -> None:
        self.of = of
        self.used = frozenset(used)
        self.ignored = frozenset(ignored)
        fields = {field.name: field for field in msgspec.structs.fields(of)}
        if unknown := (self.used | self.ignored) - fields.keys():
            raise TypeError(f"{of.__name__} has no {', '.join(sorted(unknown))}")
        self.refused = tuple([name for name in fields if name not in self.used | self.ignored])
        self._defaults = _one_or_all([_default_of(fields[name]) for name in self.refused])
        self._read: Callable[[Any], Any] | None = attrgetter(*self.refused) if self.refused else None

    def takes(self, value: msgspec.Struct) -> bool:
        """Return whether the shortcut may be used for a value: whether it knows all that the value asks for."""
        return self._read is None or bool(self._read(value) == self._defaults)

    def others(self, value: msgspec.Struct) -> tuple[Any, ...]:
        """Return the fields that it does not know, as parts of a key."""
        return tuple([getattr(value, name) for name in self.refused])

    def takes_all(self, values: Iterable[msgspec.Struct]) -> bool:
        """Return whether the shortcut may be used for all of these values."""
        return not self.refused or all(map(self.takes, values))


def _one_or_all(values: list[Any]) -> Any:
    """Return the values as `attrgetter` returns them: one by itself, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    # A field without a default equals nothing: a shortcut that does not know it is never used.
    return field.default
