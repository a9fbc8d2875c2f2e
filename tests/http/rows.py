"""Creates the rows for tests of reads, which include many corner cases, and runs a server over them during the whole
run.

In: the URL of a database with the built-in schema. Out: its filled tables, and the port of a read-only server. It must
not know a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tornado.netutil import bind_sockets

from querybuild.declarations.catalog import Catalog
from server.app import make_app, make_server
from server.postgres.opening import open_database
from server.schema.live_schema import read_live_schema
from server.settings import Settings

# Users 5 and 6 have no group, 3 has neither email nor computers, 5 has nulls wherever null can be. Names and words
# hold what LIKE, JSON and URLs treat specially. There are 65 persons: two full pages and a third.
ROWS = r"""
INSERT INTO groups (id, name) VALUES (1, 'alpha'), (2, 'beta'), (3, 'empty');
INSERT INTO users (id, first_name, last_name, age, email, status, birth_date, gender, words, date_create, group_id,
                   password_hash) VALUES
    (1, 'Ada', 'Lovelace', 36, 'ada@example.org', 'active', '1815-12-10', 'female', '{math,poetry}', '2024-01-01', 1,
     'secret'),
    (2, 'Alan', 'Turing', 41, 'alan@example.org', 'active', '1912-06-23', 'male', '{math,running}', '2024-01-02', 1,
     'secret'),
    (3, 'Grace', 'Hopper', 85, NULL, 'archive', '1906-12-09', 'female', '{navy}', '2024-01-03', 2, NULL),
    (4, 'Kurt', 'Gödel', 71, 'kurt@example.org', 'block', '1906-04-28', 'male', '{}', '2024-01-03', 2, NULL),
    (5, 'Emmy', 'Noether', NULL, NULL, 'active', NULL, NULL, '{math,"a,b"}', '2024-01-04', NULL, NULL),
    (6, 'ada', '50%_off\', 0, 'off@example.org', 'active', '2024-01-05', 'other', '{"null"}', '2024-01-05', NULL, NULL);
INSERT INTO posts (id, title, body, user_id) VALUES
    (1, 'Notes', 'On the engine', 1), (2, 'Sketch', 'Sketch', 1), (3, 'Computable', 'numbers', 2);
INSERT INTO user_bios (id, birth_city, favourite_movies, keys_to_ids_list, user_id) VALUES
    (1, 'London', NULL, '{"posts": [1, 2]}', 1), (2, 'Maida Vale', 'Snow White', NULL, 2);
INSERT INTO computers (id, name, serial, owner_id) VALUES
    (1, 'Engine', 'A-1', 1), (2, 'Bombe', NULL, 2), (3, 'Ace', 'A-3', 2), (4, 'Spare', NULL, NULL),
    (5, 'Arithmometer', 'A-5', 4);
INSERT INTO parents (id, name) VALUES (1, 'Anne'), (2, 'Byron');
INSERT INTO children (id, name) VALUES (1, 'Ada'), (2, 'Ralph'), (3, 'Nobody');
INSERT INTO parent_child_associations (id, extra_data, parent_id, child_id) VALUES
    (1, 'mother', 1, 1), (2, NULL, 2, 1), (3, 'x', 2, 2);
INSERT INTO persons (id, name) SELECT n, 'person ' || n FROM generate_series(1, 65) n;
INSERT INTO photos (id, name, meta) VALUES
    (1, 'sea', '{"a": 1, "tags": ["x", "y"]}'), (2, 'hill', '{"a": 2, "in": {"b": [1, 2]}}'), (3, 'none', NULL),
    (4, 'blank', '{}');
ANALYZE;
"""

# For the resources of `tests/catalog.py`: ids that need escapes, a node that is its own parent, titles that are names
# of tags.
CORNER_ROWS = """
INSERT INTO authors (author_no, given, family, born, "größe") VALUES
    (1, 'Ann', 'A', 1900, 170), (2, 'Bob', 'B', NULL, 5);
INSERT INTO corner.profiles (id, motto, author_no) VALUES (1, 'go', 2);
INSERT INTO corner.articles (id, title, pages, author_id, editor_id) VALUES
    ('a/1 "%', 'xy', 4, 1, 2), ('b', 'x', 3, 1, NULL), ('c', 'y', 2, 2, NULL);
INSERT INTO tags (id, name) VALUES (1, 'x'), (2, 'xy'), (3, 'xyz');
INSERT INTO corner.article_tags (article_id, tag_id) VALUES ('a/1 "%', 2), ('a/1 "%', 1), ('b', 2);
INSERT INTO corner.nodes (id, "Mixed Case", parent_id) VALUES
    ('00000000-0000-0000-0000-00000000000a', 'root', NULL),
    ('00000000-0000-0000-0000-00000000000b', 'Twig', '00000000-0000-0000-0000-00000000000a'),
    ('00000000-0000-0000-0000-00000000000c', 'own', '00000000-0000-0000-0000-00000000000c');
INSERT INTO corner.countries (code, name) VALUES ('ä/"b', 'x');
INSERT INTO corner.rules (id, must, unreadable, unfilterable, unsortable, unmatchable) VALUES
    (1, 'm', 'u', 'f', 's', 'x');
INSERT INTO corner.entries (id, line) VALUES (1, 'x');
"""


@contextmanager
def reading_server(url: str, catalog: Catalog, **changed: Any) -> Iterator[int]:
    """Serve the resources in a separate thread and event loop. changed: the settings that are not the default. Yields
    the port."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ports: list[int] = []
    ready = threading.Event()

    async def run() -> None:
        settings = Settings(**({"acquire_timeout_seconds": 30.0, "pool_size": 4} | changed))
        try:
            database = await open_database(url, settings, settings.pool_size)
            async with database.connection() as connection:
                schema = await read_live_schema(connection, catalog)
            server = make_server(make_app(settings, catalog, schema, database), settings)
            sockets = bind_sockets(0, "127.0.0.1")
            server.add_sockets(sockets)
            ports.append(sockets[0].getsockname()[1])
        finally:
            ready.set()
        await stop.wait()
        server.stop()
        await server.close_all_connections()
        await database.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
