"""Which clients get gzip, and the compression of whole bodies and of pieces."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from server.http.compression import INLINE_BYTES, SLICE_BYTES, GzipStream, accepts_gzip, compress_body

LENGTHS = [0, 1, INLINE_BYTES, INLINE_BYTES + 1, SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES]


@pytest.mark.parametrize(
    ("accept_encoding", "is_accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("deflate,gzip;q=1.0,*;q=0.5", True),
        ("gzip;q=0.001", True),
        ("gzip ; q=0.5", True),
        ("gzip;Q=0.5", True),
        ("*", True),
        ("br, *;q=0.1", True),
        ("br", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("*;q=0", False),
        ("*, gzip;q=0", False),
        ("*;q=0, gzip", True),
        ("identity;q=0, gzip;q=0.1", True),
        ("identity, gzip", True),
        ("identity, gzip;q=0.9", False),
        ("identity;q=0.5, *;q=0.6", True),
        # An invalid header is ignored.
        ("gzip;q=2", False),
        ("gzip;q=", False),
        ("gzip;q=0.1234", False),
        ("gzip;q=-1", False),
        ("gzip;level=9", False),
        ("gzipped", False),
        ("g zip", False),
        (";;;,,,", False),
        ("gzip;q=x, *;q=0.5", True),
        # So is one that is too long.
        ("gzip" + "," * 996, True),
        ("gzip" + "," * 997, False),
    ],
)
def test_accepts_gzip(accept_encoding: str, is_accepted: bool) -> None:
    assert accepts_gzip(accept_encoding) is is_accepted


def text(length: int) -> bytes:
    return random.Random(length).randbytes(length // 2 + 1).hex().encode()[:length]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_whole_body(length: int) -> None:
    packed = asyncio.run(compress_body(text(length)))
    assert zlib.decompress(packed, 31) == text(length)


@pytest.mark.parametrize("length", LENGTHS)
def test_each_piece_is_complete(length: int) -> None:
    """A client can read all of a piece as soon as it has it."""
    packing, reader = GzipStream(), zlib.decompressobj(31)

    async def send() -> None:
        for number in range(3):
            piece = text(length + number)
            assert reader.decompress(await packing.pack(piece)) == piece

    asyncio.run(send())
    assert not reader.eof
    assert reader.decompress(packing.end()) == b""
    assert reader.eof


async def test_the_event_loop_runs_while_a_large_body_is_compressed() -> None:
    """Other requests run between two slices, however large the body is."""
    body = text(20 * SLICE_BYTES)
    packing = asyncio.ensure_future(compress_body(body))
    turns = 0
    while not packing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert zlib.decompress(await packing, 31) == body


async def test_two_large_bodies_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    class Traced:
        def __init__(self, name: str) -> None:
            self._name = name

        def compress(self, _: object) -> bytes:
            begun.append(self._name)
            return b""

        def flush(self, _: int) -> bytes:
            return b""

    body, packings = bytes(4 * SLICE_BYTES), []
    for name in "ab":
        packing = GzipStream()
        monkeypatch.setattr(packing, "_stream", Traced(name))
        packings.append(packing.pack(body))
    await asyncio.gather(*packings)
    assert begun == ["a", "b"] * 4
