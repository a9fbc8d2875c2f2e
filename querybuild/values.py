"""JSON and text -> native Python values. What comes in: the text of a filter or a body, or one value of it.
What goes out: a Python tree, or the value that asyncpg takes for a column type. Nothing here knows where in a
request the value stood.

The standard library's decoder is used and not msgspec's, because the contract asks for what only it tells:
names that stand twice in an object, numbers with all their digits, and constants that are not JSON
(`docs/adr/0003-json-in.md`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any, Never

import msgspec

MAX_DEPTH = 64
"""Arrays and objects inside each other; PostgreSQL's own limit hangs on its stack and is far higher."""

FIRST_DATE, LAST_DATE = date(1, 1, 2), date(9999, 12, 30)
"""asyncpg hands 0001-01-01 and 9999-12-31 to PostgreSQL as -infinity and infinity."""

_FIRST_INSTANT = datetime(1, 1, 2, tzinfo=UTC)
_LAST_INSTANT = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_UUID = re.compile(r"[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?", re.ASCII)
_END_OF_DAY = re.compile(r"24:00:00(\.0+)?")
_INTERVAL = re.compile(
    r"P(?=[\dT-])(-?\d{1,10}Y)?(-?\d{1,10}M)?(-?\d{1,10}W)?(-?\d{1,10}D)?"
    r"(T(?=[\d-])(-?\d{1,10}H)?(-?\d{1,10}M)?(-?\d{1,10}(\.\d{1,6})?S)?)?",
    re.ASCII,
)

_DIGITS = 400
"""Of a number in JSON, before the point and after it; a double has at most 309 and 324."""

_LEAST_TOO_LARGE: int = 10**_DIGITS

MOST_ZEROS = 4 * 1024 * 1024
"""That the exponents of one value's numbers stand for. PostgreSQL writes them all: a body of 500 KB whose numbers are
`1e399` would make a row of 40 MB, and a list of some of them is too much for an answer."""

_JSON_OUT = msgspec.json.Encoder(decimal_format="number")


class ValueFault(ValueError):
    """A value that is refused; its text continues the sentence `... must be`."""


class JsonFault(ValueError):
    """A text that is not JSON as RFC 8259 and I-JSON have it; its text says what is wrong and where."""


def load_json(text: str, max_depth: int = MAX_DEPTH, *, allows_nul: bool = False) -> Any:
    """A JSON text as a Python tree: dict, list, str, int, Decimal (any number with a point or exponent), bool, None.

    Raises JsonFault for what is not JSON, a name that stands twice in an object, nesting over max_depth, and
    strings that PostgreSQL cannot hold: lone surrogates, and U+0000 unless the caller looks for it in each value.
    """
    try:
        tree = _JSON_IN.decode(text)
    except json.JSONDecodeError as error:
        # The decoder's own words differ from one Python to the next.
        raise JsonFault(f"unexpected text at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise JsonFault(f"nested deeper than {max_depth} levels") from error
    except JsonFault:
        raise
    except (ValueError, ArithmeticError) as error:
        raise JsonFault("a number has too many digits") from error
    if "\\u" in text:
        _walk(tree, 0, max_depth, check_surrogates if allows_nul else check_text)
    elif text.count("[") + text.count("{") > max_depth:
        _check_depth(tree, max_depth)
    return tree


def check_values(text: str, most: int) -> None:
    """Raises JsonFault for a JSON text whose arrays and objects have more values than that, an empty one counted as
    one. It is not read for that: to read millions, and to look at each, is what takes time."""
    if len(text) <= most or _marks(text) <= most:
        return
    # In strings they mean nothing. Each string is a name or a value.
    pieces = text.replace("\\\\", "").replace('\\"', "")
    if pieces.count('"') > 4 * (most + 1) or _marks("".join(pieces.split('"')[::2])) > most:
        raise JsonFault(f"more than {most} values")


def _marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonFault(f"the name {json.dumps(name[:80])} stands twice in one object")
            seen.add(name)
    return result


def _constant(name: str) -> Never:
    raise JsonFault(f"{name} is not JSON")


_JSON_IN = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_constant)
_CONTAINERS = (dict, list)


def _check_depth(tree: Any, max_depth: int) -> None:
    """All that stands at one level is looked at together, which takes a fifth of the time of `_walk`."""
    level = [tree] if isinstance(tree, _CONTAINERS) else []
    for _ in range(max_depth):
        if not level:
            return
        inner = chain.from_iterable([one.values() if isinstance(one, dict) else one for one in level])
        level = [one for one in inner if isinstance(one, _CONTAINERS)]
    if level:
        raise JsonFault(f"nested deeper than {max_depth} levels")


def _walk(tree: Any, depth: int, max_depth: int, check: Callable[[str], None]) -> None:
    match tree:
        case str():
            check(tree)
        case dict() | list() if depth == max_depth:
            raise JsonFault(f"nested deeper than {max_depth} levels")
        case dict():
            for name, value in tree.items():
                check(name)
                _walk(value, depth + 1, max_depth, check)
        case list():
            for value in tree:
                _walk(value, depth + 1, max_depth, check)


def check_text(text: str) -> None:
    """Raises JsonFault for what no PostgreSQL text can hold."""
    if "\0" in text:
        raise JsonFault("a string holds U+0000, which PostgreSQL cannot store")
    check_surrogates(text)


def check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonFault("a string holds half of a surrogate pair") from error


def check_texts(value: Any) -> None:
    """Raises JsonFault for U+0000 in any string of a tree of `load_json`."""
    match value:
        case str():
            if "\0" in value:
                raise JsonFault("a string holds U+0000, which PostgreSQL cannot store")
        case dict():
            for name, inner in value.items():
                check_texts(name)
                check_texts(inner)
        case list():
            for inner in value:
                check_texts(inner)
        case _:
            pass


def dump_json(tree: Any) -> str:
    """A tree of `load_json` as JSON text, numbers digit by digit as they came."""
    try:
        return _JSON_OUT.encode(tree).decode()
    except OverflowError:  # msgspec before 0.21 writes integers of at most 64 bits
        return _JSON_OUT.encode(_with_decimals(tree)).decode()


def _with_decimals(tree: Any) -> Any:
    match tree:
        case dict():
            return {name: _with_decimals(value) for name, value in tree.items()}
        case list():
            return [_with_decimals(value) for value in tree]
        case int() if not isinstance(tree, bool):
            return Decimal(tree)
        case _:
            return tree


# JSON value -> native. Each raises ValueFault, whose text says what is expected.


def bool_of(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueFault("true or false")


def bool_of_text(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    raise ValueFault("true or false")


class Integer:
    """Reads whole numbers of a width; `3.0` is one, `"3"` is not."""

    def __init__(self, bits: int) -> None:
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.expected = f"a whole number from {self.low} to {self.high}"

    def __call__(self, value: Any) -> int:
        if isinstance(value, Decimal) and abs(value.adjusted()) < 40 and value == value.to_integral_value():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        raise ValueFault(self.expected)

    def text(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueFault(self.expected)
        return self(int(text))


def decimal_of(value: Any) -> Decimal:
    """numeric, within what PostgreSQL can hold: 131072 digits before the point, 16383 after it."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= -16383 and value.adjusted() < 131072:
            return value
    raise ValueFault("a number, or a string that holds one")


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def numeric_of(value: Any) -> Decimal:
    """The same, and what PostgreSQL's numeric has besides, as it is shown."""
    return Decimal(value) if isinstance(value, str) and value in _NO_NUMBERS else decimal_of(value)


class Float:
    """Reads float4 and float8; a number over the range is refused, not made infinite."""

    def __init__(self, largest: float) -> None:
        self.largest = largest
        self.expected = f"a number from -{largest:g} to {largest:g}"

    def __call__(self, value: Any) -> float:
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                raise ValueFault(self.expected) from None
            if abs(number) <= self.largest:
                return number
        raise ValueFault(self.expected)

    def text(self, text: str) -> float:
        return self(decimal_of(text))


def str_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueFault("a string")


def uuid_of(value: Any) -> uuid.UUID:
    if isinstance(value, str) and _UUID.fullmatch(value):
        return uuid.UUID(value)
    raise ValueFault("a UUID such as 123e4567-e89b-12d3-a456-426614174000")


def date_of(value: Any) -> date:
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            day = date.fromisoformat(value)
        except ValueError:
            pass
        else:
            if FIRST_DATE <= day <= LAST_DATE:
                return day
    raise ValueFault(f"a date such as 2024-05-31, from {FIRST_DATE} to {LAST_DATE}")


class EndOfDay(msgspec.Struct, frozen=True):
    """24:00:00, which PostgreSQL has and Python's `time` has not: its parts as the driver reads those of a `time`, with
    which it compares."""

    hour: int = 24
    minute: int = 0
    second: int = 0
    microsecond: int = 0

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return isinstance(other, time)


def time_of(value: Any) -> time | EndOfDay:
    if isinstance(value, str) and _TIME.fullmatch(value):
        if _END_OF_DAY.fullmatch(value):
            return EndOfDay()
        try:
            return time.fromisoformat(value)
        except ValueError:
            pass
    raise ValueFault("a time of day such as 23:59:59 or 23:59:59.999999, 24:00:00 at most")


def time_shown(text: str | None) -> str | None:
    """PostgreSQL's text of a `time`, a fraction with all its six digits.

    >>> time_shown("12:00:00.5"), time_shown("12:00:00")
    ('12:00:00.500000', '12:00:00')
    """
    if text is None or "." not in text:
        return text
    return f"{text:0<15}"


def timestamptz_of(value: Any) -> datetime:
    """RFC 3339, section 5.6: the offset is not optional. The result is in UTC."""
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            moment = msgspec.convert(value, datetime)
            if _FIRST_INSTANT <= (moment := moment.astimezone(UTC)) <= _LAST_INSTANT:
                return moment
        except (msgspec.ValidationError, OverflowError):
            pass
    raise ValueFault(
        f"a date and time with its offset such as 2024-05-31T23:59:59Z (RFC 3339), from {FIRST_DATE} to {LAST_DATE}"
    )


def timestamp_of(value: Any) -> datetime:
    """As timestamptz; a column without time zone holds UTC."""
    return timestamptz_of(value).replace(tzinfo=None)


def interval_of(value: Any) -> str:
    """ISO 8601 duration; PostgreSQL reads the text itself, so that months stay months."""
    if isinstance(value, str) and _INTERVAL.fullmatch(value):
        return value
    raise ValueFault("an ISO 8601 duration such as P1Y2M3DT4H5M6S")


def bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise ValueFault("a string in base64")


def json_of(value: Any) -> str:
    """JSON text for a column. PostgreSQL shows a number of jsonb in full, 131,072 digits of `1e131071`: a short body
    could make rows too large to be read again. A number is the same however it is written: `1e400` is refused, and so
    are its 401 digits."""
    numbers = _numbers(value)
    if not all(map(_is_plain, numbers)):
        raise ValueFault(f"JSON whose numbers are less than 1e{_DIGITS}, and no smaller than 1e-{_DIGITS}")
    check_zeros(numbers)
    return dump_json(value)


def _numbers(tree: Any) -> list[int | Decimal]:
    """All numbers of a tree. What stands at one level is looked at together, as in `_check_depth`."""
    found: list[int | Decimal] = []
    level = [tree]
    while level:
        found += [one for one in level if isinstance(one, (int, Decimal))]
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, _CONTAINERS)]
        level = list(chain.from_iterable(inner))
    return found


def _is_plain(number: int | Decimal) -> bool:
    if isinstance(number, int):
        return -_LEAST_TOO_LARGE < number < _LEAST_TOO_LARGE
    return bool(abs(number.adjusted()) < _DIGITS)


def check_zeros(numbers: Sequence[Any]) -> None:
    """Raises ValueFault where numbers take much more room in full than they were sent in."""
    if sum([_zeros(one) for one in numbers if isinstance(one, Decimal)]) > MOST_ZEROS:
        raise ValueFault(f"a value whose numbers have exponents for at most {MOST_ZEROS} zeros in all")


def _zeros(number: Decimal) -> int:
    """How many zeros its exponent stands for, about: 399 in `1e399`."""
    exponent = number.as_tuple().exponent
    return max(exponent, -number.adjusted(), 0) if isinstance(exponent, int) else 0


def json_of_text(text: str) -> str:
    try:
        return json_of(load_json(text))
    except JsonFault as error:
        raise ValueFault(f"JSON ({error})") from error


def interval_shown(parts: bytes | None) -> str | None:
    """interval_send's 16 bytes (microseconds, days, months) as an ISO 8601 duration.

    >>> interval_shown((3_600_000_000).to_bytes(8, "big") + (2).to_bytes(4, "big") + (14).to_bytes(4, "big"))
    'P1Y2M2DT1H'
    """
    if parts is None:
        return None
    microseconds = int.from_bytes(parts[:8], "big", signed=True)
    days = int.from_bytes(parts[8:12], "big", signed=True)
    months = int.from_bytes(parts[12:], "big", signed=True)
    sign = -1 if microseconds < 0 else 1
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{'-' if sign < 0 else ''}{rest // 1_000_000}" + (
        f".{rest % 1_000_000:06}".rstrip("0") if rest % 1_000_000 else ""
    )
    years = int(months / 12)
    day_part = _units((years, "Y"), (months - years * 12, "M"), (days, "D"))
    clock = _units((sign * hours, "H"), (sign * minutes, "M")) + (f"{seconds}S" if rest else "")
    return "P" + (day_part + ("T" + clock if clock else "") or "T0S")


def _units(*parts: tuple[int, str]) -> str:
    return "".join(f"{number}{unit}" for number, unit in parts if number)
