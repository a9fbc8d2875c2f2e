"""Makes entity tags, and reads those that clients send (RFC 9110, 8.8.3 and 13.1).

A tag is `"<version>.<hash>"`: the version of what a document shows, and the XXH3 hash of its bytes. The first part
tells whether what was read has changed, and the whole tag whether the same bytes would be sent again.

It must not know: resources, HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from xxhash import xxh3_64, xxh3_64_hexdigest

from serializers.links import quote_segment
from serializers.steps import Steps

_VERSION_CHARACTERS = 16
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_LIST = re.compile(rf"[ \t,]*(?:{_TAG.pattern}[ \t]*(?:,[ \t,]*|$))+")
_VERSION = re.compile(r"[\x21\x23-\x7e]+")
_GZIP = "-gzip"
"""What the tag of a compressed answer has before its closing quote (RFC 9110, 8.8.3.3)."""


class Tags(msgspec.Struct, frozen=True):
    """The tags of If-Match or If-None-Match. is_any: whether it is `*`. strong, weak: without their quotes."""

    is_any: bool = False
    strong: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()

    @property
    def versions(self) -> frozenset[str] | None:
        """The versions that the strong tags may mean: all of each, and what stands before its last dot. None for
        any."""
        if self.is_any:
            return None
        return frozenset([text for tag in self.strong for text in (tag, tag.rpartition(".")[0] or tag)])

    def has(self, etag: str) -> bool:
        """Return whether one of them is this tag, by the weak comparison. etag: with its quotes."""
        return self.is_any or _opaque(etag) in map(_uncompressed, (*self.strong, *self.weak))


def entity_tag(version: str | None, document: bytes) -> str:
    """Return the tag of a document. version: None for what has no version.

    >>> entity_tag("7", b"{}")
    '"7.1349cde127705c16"'
    """
    return _tag(version, xxh3_64_hexdigest(document))


def with_hash(tag: str, document: bytes) -> str:
    """Return the tag of a document. tag: all of it, or only its version in its place.

    >>> with_hash('"7."', b"{}"), with_hash('""', b"{}"), with_hash('"7.1349cde127705c16"', b"{}")
    ('"7.1349cde127705c16"', '"1349cde127705c16"', '"7.1349cde127705c16"')
    """
    if tag == '""':
        return entity_tag(None, document)
    return entity_tag(tag[1:-2], document) if tag.endswith('."') else tag


def tag_of_pieces(version: str | None, pieces: Sequence[bytes]) -> Steps[str]:
    """Return the tag of a document in pieces. A step takes the time of one piece."""
    digest = xxh3_64()
    for piece in pieces:
        digest.update(piece)
        yield
    return _tag(version, digest.hexdigest())


def _tag(version: str | None, digest: str) -> str:
    return f'"{digest}"' if version is None else f'"{version}.{digest}"'


def compressed(etag: str) -> str:
    """Return the tag of the compressed answer.

    >>> compressed('"7.1349cde127705c16"')
    '"7.1349cde127705c16-gzip"'
    """
    return f'{etag[:-1]}{_GZIP}"'


def version_of_ids(ids: Iterable[str]) -> str:
    """Return the version of the linkage with these ids, in any order. `select.py` has the same in SQL."""
    return sha256(",".join(sorted(ids)).encode()).hexdigest()[:_VERSION_CHARACTERS]


def version_of_related(row_id: object, version: str) -> str:
    """Return the version of the related resource of a to-one: it changes if another resource is related.

    >>> version_of_related("5", "7")
    '5:7'
    """
    return f"{quote_segment(str(row_id))}:{version}"


def _opaque(etag: str) -> str:
    """Return a tag without its quotes, and without the mark of a compressed answer."""
    return _uncompressed(etag.removeprefix("W/").strip('"'))


def _uncompressed(text: str) -> str:
    return text.removesuffix(_GZIP)


def parse_tags(text: str) -> Tags:
    """Return the tags of a header. Raises ValueError.

    >>> parse_tags('"7", W/"8"')
    Tags(is_any=False, strong=('7',), weak=('8',))
    """
    text = text.strip(" \t")
    if text == "*":
        return Tags(is_any=True)
    if not _LIST.fullmatch(text):
        raise ValueError(text)
    tags = _TAG.findall(text)
    return Tags(False, tuple([tag for weak, tag in tags if not weak]), tuple([tag for weak, tag in tags if weak]))


def read_match(value: Any) -> Tags:
    """Return the tags of a JSON value or of custom code: `*`, a version, a tag with its quotes, or a list of these.
    Raises ValueError.

    >>> read_match(["7", '"8.1349cde127705c16"'])
    Tags(is_any=False, strong=('7', '8.1349cde127705c16'), weak=())
    """
    if isinstance(value, str):
        return Tags(False, (value,)) if _VERSION.fullmatch(value) and value != "*" else parse_tags(value)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
        raise ValueError(value)
    listed = [read_match(item) for item in value]
    if any(tags.is_any for tags in listed):
        raise ValueError(value)
    return Tags(
        False,
        tuple([tag for tags in listed for tag in tags.strong]),
        tuple([tag for tags in listed for tag in tags.weak]),
    )
