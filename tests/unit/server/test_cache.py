"""The bounded cache, and the size of the engine's caches when all requests have different shapes."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from urllib.parse import quote

import pytest

from querybuild.cache import BoundedCache, SecondUseCache
from querybuild.declarations.resource import Resource
from querybuild.errors import SortError
from server.engine import ANYBODY, Engine
from server.preparing.reads import PreparedRead, ReadShape
from server.routes import ON_MANY
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.catalog import ARTICLE, AUTHOR, CATALOG
from tests.planning import create


def kept(cache: BoundedCache[str], *keys: int) -> list[int]:
    return [key for key in keys if cache.get(key) is not None]


def test_bounded_in_entries() -> None:
    cache: BoundedCache[str] = BoundedCache(3, 1000)
    for key in range(5):
        cache.put(key, "x", 1)
    assert (len(cache), cache.bytes) == (3, 3)
    assert kept(cache, 0, 1, 2, 3, 4) == [2, 3, 4]


def test_bounded_in_bytes() -> None:
    cache: BoundedCache[str] = BoundedCache(100, 10)
    for key, weight in enumerate((4, 4, 4)):
        cache.put(key, "x", weight)
    assert (len(cache), cache.bytes) == (2, 8)
    cache.put(3, "x", 10)
    assert (len(cache), cache.bytes) == (1, 10)
    assert kept(cache, 0, 1, 2, 3) == [3]


def test_an_entry_larger_than_the_cache_is_not_kept_and_evicts_nothing() -> None:
    cache: BoundedCache[str] = BoundedCache(100, 10)
    cache.put(0, "x", 5)
    cache.put(1, "x", 11)
    assert kept(cache, 0, 1) == [0]
    nothing: BoundedCache[str] = BoundedCache(0, 10)
    nothing.put(0, "x", 1)
    assert (len(nothing), nothing.bytes) == (0, 0)


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache: BoundedCache[str] = BoundedCache(2, 1000)
    cache.put(0, "x", 1)
    cache.put(1, "x", 1)
    cache.get(0)
    cache.put(2, "x", 1)
    assert kept(cache, 0, 1, 2) == [0, 2]


def test_a_key_that_is_put_twice_counts_once() -> None:
    cache: BoundedCache[str] = BoundedCache(2, 1000)
    cache.put(0, "first", 7)
    cache.put(0, "second", 9)
    assert (cache.get(0), len(cache), cache.bytes) == ("first", 1, 7)


def test_hits_and_misses_are_counted() -> None:
    cache: BoundedCache[str] = BoundedCache(2, 1000)
    cache.put(0, "x", 1)
    for key in (0, 0, 1):
        cache.get(key)
    assert (cache.hits, cache.misses) == (2, 1)


def test_a_million_different_shapes() -> None:
    cache: BoundedCache[int] = BoundedCache(1000, 50_000)
    most = 0
    for key in range(1_000_000):
        cache.put(key, key, 40 + key % 32)
        if not key % 1000:
            most = max(most, len(cache), cache.bytes)
    assert most <= 50_000
    assert cache.bytes == sum(weight for _, weight in cache._entries.values())
    assert 50_000 - 71 < cache.bytes <= 50_000
    assert list(cache._entries) == list(range(1_000_000 - len(cache), 1_000_000))


def test_a_key_is_kept_when_it_is_put_for_the_second_time() -> None:
    cache: SecondUseCache[str] = SecondUseCache(2, 1000)
    cache.put(0, "first", 7)
    assert (cache.get(0), len(cache), cache.bytes) == (None, 0, 0)
    cache.put(0, "second", 9)
    assert (cache.get(0), len(cache), cache.bytes) == ("second", 1, 9)
    assert (cache.hits, cache.misses) == (1, 1)


def test_keys_that_are_put_once_evict_nothing_and_take_little_memory() -> None:
    cache: SecondUseCache[str] = SecondUseCache(100, 1000)
    for key in (0, 0, 1, 1):
        cache.put(key, "x", 1)
    tracemalloc.start()
    for key in range(2, 100_000):
        cache.put(key, "x", 1)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept(cache, 0, 1) == [0, 1]
    assert (len(cache), cache.bytes) == (2, 2)
    assert taken < 32_768, f"took {taken} bytes"


@pytest.mark.parametrize(
    ("before", "after", "is_kept"), [(0, 199, True), (0, 200, False), (99, 100, True), (99, 101, False)]
)
def test_a_key_is_remembered_for_at_least_as_many_others_as_there_may_be_entries(
    before: int, after: int, is_kept: bool
) -> None:
    cache: SecondUseCache[str] = SecondUseCache(100, 1000)
    others = [1000 + number for number in range(before + after)]
    for key in (*others[:before], 0, *others[before:], 0):
        cache.put(key, "x", 1)
    assert kept(cache, 0) == ([0] if is_kept else [])


def test_keys_that_are_put_twice_are_bounded_too() -> None:
    cache: SecondUseCache[int] = SecondUseCache(10, 35)
    for key in range(1000):
        cache.put(key, key, 4)
        cache.put(key, key, 4)
    assert (list(cache._entries), cache.bytes) == (list(range(992, 1000)), 32)


def read(engine: Engine, resource: Resource, query: str) -> PreparedRead:
    return engine.reads.prepare(ReadShape("collection", resource, accepts=ON_MANY), query, ANYBODY)


def shapes(engine: Engine, start: int, count: int) -> None:
    """Make reads that differ in their text and in their plans, and writes of different attributes."""
    for number in range(start, start + count):
        names = [AUTHOR.attributes[index % 5].name for index in range(number % 5 + 1)]
        sort = ",".join(f"{'-' * (number >> bit & 1)}{name}" for bit, name in enumerate(("born", "given-name", "id")))
        tests = [{"name": "born", "op": "eq", "val": number}] * (number % 17 + 1)
        filters = quote(json.dumps([{"not": {"or": tests}}] if number & 8 else tests))
        include = ("articles.tags", "profile", "desk", "edited.author")[number % 4]
        fields = quote(",".join(names))
        for _ in range(2):
            read(engine, AUTHOR, f"filter={filters}&sort={sort}&include={include}&fields[author]={fields}")
    for number in range(start, start + count // 10):
        attributes = {"title": "x", **({"pages": 1} if number & 1 else {})}
        author = {"author": {"data": {"type": "author", "id": "1"}}}
        tags = [{"type": "tag", "id": str(tag)} for tag in range(number % 7)]
        relationships = author | ({"tags": {"data": tags}} if number & 2 else {})
        engine.statements.of_write(
            create("article", {"attributes": attributes, "relationships": relationships}).plan, None
        )


def test_full_caches_do_not_grow() -> None:
    """Nothing stays of 200 further shapes: a list of each would be 200 blocks of memory."""
    engine = Engine(Settings(statement_cache_entries=20, statement_cache_bytes=5_000_000), CATALOG, LiveSchema())
    shapes(engine, 0, 150)
    gc.collect()
    before = sys.getallocatedblocks()
    shapes(engine, 150, 200)
    gc.collect()
    after = sys.getallocatedblocks()
    assert (
        len(engine.caches["prepared_reads"]),
        len(engine.caches["compiled_reads"]),
        len(engine.caches["compiled_writes"]),
    ) == (20, 20, 4)
    assert after - before < 100, f"grew by {after - before} blocks"


def lists(number: int) -> str:
    tests = [{"name": "given-name", "op": "in_", "val": [f"{number + index:05}" for index in range(1000)]}]
    return "filter=" + quote(json.dumps(tests), safe='[]{}:,"')


def groups(number: int) -> str:
    name = ("born", "articles.tags.name", "profile.author.desk.room")[number % 3]
    tests = [{"name": name, "op": "ne", "val": number if name == "born" else "x"}] * (number % 40 + 1)
    return "filter=" + quote(json.dumps(tests)) + f"&page[size]={number + 1}"


@pytest.mark.parametrize("query", [lists, groups])
def test_the_assumed_size_of_entries_is_close_to_their_real_size(query: Callable[[int], str]) -> None:
    """Otherwise the limit in bytes would mean nothing: the caches count at least three quarters of the memory that
    entries take."""
    engine = Engine(Settings(), CATALOG, LiveSchema())
    read(engine, AUTHOR, query(0))
    gc.collect()
    tracemalloc.start()
    for number in range(1, 30, 2):
        for _ in range(2):
            read(engine, AUTHOR, query(number))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    caches = engine.caches["prepared_reads"], engine.caches["compiled_reads"], engine.caches["read_forms"]
    counted = sum(cache.bytes for cache in caches)
    assert counted > 0.75 * taken, f"{counted} bytes counted, {taken} taken"


def test_one_shape_is_compiled_once() -> None:
    engine = Engine(Settings(), CATALOG, LiveSchema())
    reads = [read(engine, ARTICLE, f"filter[pages]={number}&page[size]=5") for number in range(100)]
    assert len({id(prepared.ready) for prepared in reads}) == 1
    assert (engine.caches["compiled_reads"].misses, engine.caches["compiled_reads"].hits) == (1, 0)
    assert (engine.caches["read_forms"].misses, engine.caches["read_forms"].hits) == (1, 99)
    assert [(one.planned.values, one.planned.page_values.limit) for one in reads[:2]] == [((0,), 5), ((1,), 5)]
    assert len(engine.caches["prepared_reads"]) == 0


def test_a_query_string_that_was_sent_twice_is_not_even_parsed() -> None:
    engine = Engine(Settings(), CATALOG, LiveSchema())
    reads = [read(engine, ARTICLE, "filter[pages]=7&page[size]=5") for _ in range(4)]
    assert [prepared is reads[1] for prepared in reads] == [False, True, True, True]
    assert (engine.caches["prepared_reads"].misses, engine.caches["prepared_reads"].hits) == (2, 2)


def test_query_strings_that_occur_once_evict_none_that_occurred_twice() -> None:
    engine = Engine(Settings(statement_cache_entries=20), CATALOG, LiveSchema())
    for _ in range(2):
        useful = read(engine, ARTICLE, "filter[pages]=7")
    for number in range(1000):
        read(engine, ARTICLE, f"filter[title]={number}")
    assert read(engine, ARTICLE, "filter[pages]=7") is useful


def test_a_refused_request_is_not_cached() -> None:
    engine = Engine(Settings(), CATALOG, LiveSchema())
    for _ in range(3):
        with pytest.raises(SortError):
            read(engine, ARTICLE, "sort=nope")
    assert len(engine.caches["prepared_reads"]) == 0
