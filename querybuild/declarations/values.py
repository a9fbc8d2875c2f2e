"""Converts JSON values and texts to native Python values. What comes in: a value from JSON, or the text of a simple
filter. What goes out: the value that asyncpg takes for a column type. It must not know: where in a request the value
is.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Annotated, Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, dump_json, load_json

FIRST_DATE, LAST_DATE = date(1, 1, 2), date(9999, 12, 30)
"""asyncpg sends 0001-01-01 and 9999-12-31 to PostgreSQL as -infinity and infinity."""

_FIRST_INSTANT = datetime(1, 1, 2, tzinfo=UTC)
_LAST_INSTANT = datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_UUID = re.compile(r"[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?", re.ASCII)
_END_OF_DAY = re.compile(r"24:00:00(\.0+)?")
INTERVAL = (
    r"P(?=[\dT-])(-?\d{1,10}Y)?(-?\d{1,10}M)?(-?\d{1,10}W)?(-?\d{1,10}D)?"
    r"(T(?=[\d-])(-?\d{1,10}H)?(-?\d{1,10}M)?(-?\d{1,10}(\.\d{1,6})?S)?)?"
)
"""The pattern of an ISO 8601 duration."""
_INTERVAL = re.compile(INTERVAL, re.ASCII)

JsonSchema = dict[str, Any]
"""A JSON Schema of draft 2020-12, as OpenAPI 3.1 has them. Nobody changes one."""

WITHOUT_NUL = "^[^\\u0000]*$"
"""The texts that PostgreSQL can hold, as a pattern of ECMA-262."""

NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
"""The pattern of a number in a string."""

_DIGITS = 400
"""The limit for the digits of a number in JSON, before and after the point. A double has at most 309 and 324."""

_SMALLEST_TOO_LARGE: int = 10**_DIGITS

MAX_ZEROS = 4 * 1024 * 1024
"""The limit for the zeros that the exponents in one value stand for. PostgreSQL writes all of them: a body of 500 KB
whose numbers are `1e399` would become a row of 40 MB, and a list of such rows is too large for an answer."""


class ValueFault(ValueError):
    """An invalid value. The text continues the sentence `... must be`."""


def nullable(schema: JsonSchema) -> JsonSchema:
    """Return the schema for the same values and null.

    >>> nullable({"type": "string", "enum": ["a"]})
    {'type': ['string', 'null'], 'enum': ['a', None]}
    """
    if not schema:
        return schema
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    widened = schema | {"type": [*types, "null"]}
    return widened | {"enum": [*schema["enum"], None]} if "enum" in schema else widened


# Each of the following converts a JSON value to a native one. It raises ValueFault, whose text says what is expected.


def bool_of(value: Any) -> bool:
    """Convert a boolean."""
    if isinstance(value, bool):
        return value
    raise ValueFault("true or false")


def bool_of_text(text: str) -> bool:
    """Convert the text of a boolean."""
    if text in ("true", "false"):
        return text == "true"
    raise ValueFault("true or false")


class Integer:
    """Converts whole numbers with this number of bits. `3.0` is accepted, `"3"` is not."""

    def __init__(self, bits: int) -> None:
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.expected = f"a whole number from {self.low} to {self.high}"
        self._all = list[Annotated[int, msgspec.Meta(ge=self.low, le=self.high)]]

    def __call__(self, value: Any) -> int:
        if isinstance(value, Decimal) and abs(value.adjusted()) < 40 and value == value.to_integral_value():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return value
        raise ValueFault(self.expected)

    def read_all(self, values: Sequence[Any]) -> Sequence[int] | None:
        """Return many values, or None if one of them is no `int` within the limits. This takes a fiftieth of the time
        of converting each."""
        try:
            return msgspec.convert(values, self._all)
        except msgspec.ValidationError:
            return None

    def text(self, text: str) -> int:
        """Convert a text."""
        if not _INTEGER.fullmatch(text):
            raise ValueFault(self.expected)
        return self(int(text))


def decimal_of(value: Any) -> Decimal:
    """Convert a numeric within PostgreSQL's limits: 131072 digits before the point, 16383 after it."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= -16383 and value.adjusted() < 131072:
            return value
    raise ValueFault("a number, or a string that contains one")


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def numeric_of(value: Any) -> Decimal:
    """Convert a numeric, or NaN or an infinity as it is shown."""
    return Decimal(value) if isinstance(value, str) and value in _NO_NUMBERS else decimal_of(value)


class Float:
    """Converts float4 and float8. A number beyond the range is refused, and does not become infinite."""

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
        """Convert a text."""
        return self(decimal_of(text))


def str_of(value: Any) -> str:
    """Return a string."""
    if isinstance(value, str):
        return value
    raise ValueFault("a string")


ReadAll = Callable[[Sequence[Any]], Sequence[Any] | None]
"""Converts many values at once. It returns None if they have to be converted one by one."""


def strs_of(values: Sequence[Any]) -> Sequence[str] | None:
    """Return many strings, or None if one of them is none. This takes a tenth of the time of converting each."""
    return values if set(map(type, values)) == {str} else None


def uuid_of(value: Any) -> uuid.UUID:
    """Convert a UUID."""
    if isinstance(value, str) and _UUID.fullmatch(value):
        return uuid.UUID(value)
    raise ValueFault("a UUID such as 123e4567-e89b-12d3-a456-426614174000")


def date_of(value: Any) -> date:
    """Convert a date."""
    day = any_date_of(value)
    if day is not None and FIRST_DATE <= day <= LAST_DATE:
        return day
    raise ValueFault(f"a date such as 2024-05-31, from {FIRST_DATE} to {LAST_DATE}")


def any_date_of(value: Any) -> date | None:
    """Convert a date from 0001-01-01 to 9999-12-31. Return None if it is none."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    return None


class EndOfDay(msgspec.Struct, frozen=True):
    """24:00:00, which PostgreSQL has but Python's `time` has not. The driver reads its parts like those of a `time`. It
    can be compared with a `time`."""

    hour: int = 24
    minute: int = 0
    second: int = 0
    microsecond: int = 0

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return isinstance(other, time)


def time_of(value: Any) -> time | EndOfDay:
    """Convert a time of day."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        if _END_OF_DAY.fullmatch(value):
            return EndOfDay()
        try:
            return time.fromisoformat(value)
        except ValueError:
            pass
    raise ValueFault("a time of day such as 23:59:59 or 23:59:59.999999, 24:00:00 at most")


def time_shown(text: str | None) -> str | None:
    """Return PostgreSQL's text of a `time` with six digits of its fraction.

    >>> time_shown("12:00:00.5"), time_shown("12:00:00")
    ('12:00:00.500000', '12:00:00')
    """
    if text is None or "." not in text:
        return text
    return f"{text:0<15}"


def timestamptz_of(value: Any) -> datetime:
    """Convert a date and time of RFC 3339, section 5.6: the offset is required. The result is in UTC."""
    moment = any_moment_of(value)
    if moment is not None and _FIRST_INSTANT <= moment <= _LAST_INSTANT:
        return moment
    raise ValueFault(
        f"a date and time with its offset such as 2024-05-31T23:59:59Z (RFC 3339), from {FIRST_DATE} to {LAST_DATE}"
    )


def any_moment_of(value: Any) -> datetime | None:
    """Convert the same from 0001-01-01 to 9999-12-31. Return None if it is none."""
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            return msgspec.convert(value, datetime).astimezone(UTC)
        except (msgspec.ValidationError, OverflowError):
            pass
    return None


def timestamp_of(value: Any) -> datetime:
    """Convert a date and time like timestamptz. A column without time zone contains UTC."""
    return timestamptz_of(value).replace(tzinfo=None)


def interval_of(value: Any) -> str:
    """Check an ISO 8601 duration. PostgreSQL parses the text itself, so that months stay months."""
    match = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueFault("an ISO 8601 duration such as P1Y2M3DT4H5M6S")
    parts = [Decimal(part[:-1]).copy_abs() if part else 0 for part in match.group(1, 2, 3, 4, 6, 7, 8)]
    years, months, weeks, days, hours, minutes, seconds = parts
    time = 3600 * hours + 60 * minutes + seconds
    if max(12 * years + months, 7 * weeks + days) >= 2**31 or 10**6 * time >= 2**63:
        raise ValueFault("an ISO 8601 duration of less than 2^31 months, 2^31 days and 2^63 microseconds")
    return match[0]


def bytes_of(value: Any) -> bytes:
    """Convert a base64 string."""
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise ValueFault("a string in base64")


def json_of(value: Any) -> str:
    """Return the JSON text for a column. PostgreSQL shows numbers of jsonb in full, `1e131071` with 131,072 digits, so
    a short body could create rows that are too large to read. The limit does not depend on the spelling: `1e400` is
    refused, and so are its 401 digits."""
    numbers = _numbers(value)
    if not all(map(_is_plain, numbers)):
        raise ValueFault(f"JSON whose numbers are less than 1e{_DIGITS}, and no smaller than 1e-{_DIGITS}")
    check_zeros(numbers)
    return dump_json(value)


def _numbers(tree: Any) -> list[int | Decimal]:
    """Return all numbers of a tree, level by level, as in `_check_depth`."""
    numbers: list[int | Decimal] = []
    level = [tree]
    while level:
        numbers += [item for item in level if isinstance(item, (int, Decimal))]
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = list(chain.from_iterable(inner))
    return numbers


def _is_plain(number: int | Decimal) -> bool:
    if isinstance(number, int):
        return -_SMALLEST_TOO_LARGE < number < _SMALLEST_TOO_LARGE
    return bool(abs(number.adjusted()) < _DIGITS)


def check_zeros(numbers: Sequence[Any]) -> None:
    """Check that numbers do not become much longer when they are written in full. Raises ValueFault."""
    if sum([_zeros(decimal) for decimal in numbers if isinstance(decimal, Decimal)]) > MAX_ZEROS:
        raise ValueFault(f"a value whose numbers have exponents for at most {MAX_ZEROS} zeros in all")


def _zeros(number: Decimal) -> int:
    """Return approximately how many zeros the exponent stands for: 399 for `1e399`."""
    exponent = number.as_tuple().exponent
    return max(exponent, -number.adjusted(), 0) if isinstance(exponent, int) else 0


def json_of_text(text: str) -> str:
    """Return the JSON text for a column, from a JSON text."""
    try:
        return json_of(load_json(text))
    except JsonFault as error:
        raise ValueFault(f"JSON ({error})") from error


def interval_shown(parts: bytes | None) -> str | None:
    """Return the 16 bytes of interval_send (microseconds, days, months) as an ISO 8601 duration.

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
