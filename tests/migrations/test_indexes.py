"""The index that PostgreSQL's planner chooses for each kind of query, with some thousand rows in each table."""

import asyncio
import json

import asyncpg
import pytest

# With so many rows the planner chooses as on a real server, and no planner setting is changed.
MANY_ROWS = """
INSERT INTO groups (name) SELECT 'group ' || md5(n::text) FROM generate_series(1, 2000) n;
INSERT INTO users (first_name, last_name, age, email, status, birth_date, date_create, words, group_id)
    SELECT md5(n::text), md5((n + 1)::text), nullif(n % 100, 0), nullif(n, 9) || '@example.org',
           CASE WHEN n % 50 = 0 THEN 'block' ELSE 'active' END, date '1960-01-01' + n, date '2020-01-01' + n % 999,
           ARRAY['w' || n], 1 + n % 50
    FROM generate_series(1, 5000) n;
INSERT INTO posts (title, body, user_id)
    SELECT md5(n::text), '', CASE WHEN n % 150 = 0 THEN 7 ELSE 1 + n % 5000 END
    FROM generate_series(1, 10000) n;
INSERT INTO user_bios (birth_city, user_id, keys_to_ids_list)
    SELECT md5(n::text), n, jsonb_build_object('k', jsonb_build_array(n)) FROM generate_series(1, 5000) n;
INSERT INTO computers (name, serial, owner_id)
    SELECT md5(n::text), 's' || n, CASE WHEN n % 150 = 0 THEN 7 ELSE 1 + n % 5000 END
    FROM generate_series(1, 15000) n;
INSERT INTO parents (name) SELECT md5(n::text) FROM generate_series(1, 3000) n;
INSERT INTO children (name) SELECT md5(n::text) FROM generate_series(1, 3000) n;
INSERT INTO parent_child_associations (parent_id, child_id) SELECT n, n FROM generate_series(1, 3000) n;
INSERT INTO persons (name) SELECT md5(n::text) FROM generate_series(1, 3000) n;
INSERT INTO photos (name, meta) SELECT md5(n::text), jsonb_build_object('n', n) FROM generate_series(1, 3000) n;
"""


@pytest.fixture(scope="module")
def filled(catalog_url):
    """Yield the URL of a database with some thousand rows in each table and new statistics."""
    asyncio.run(fill(catalog_url))
    return catalog_url


async def fill(url):
    conn = await asyncpg.connect(url)
    await conn.execute(MANY_ROWS)
    await conn.execute("VACUUM ANALYZE")
    await conn.close()


async def plan_of(conn, sql):
    """Return the node types and indexes of the plan that PostgreSQL chooses for data in memory or on an SSD."""
    await conn.execute("SET random_page_cost = 1.1")
    found = json.loads(await conn.fetchval(f"EXPLAIN (FORMAT JSON) {sql}"))
    nodes = list(walk(found[0]["Plan"]))
    return [node["Node Type"] for node in nodes], {node["Index Name"] for node in nodes if "Index Name" in node}


def walk(node):
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


SORTS = [
    # rows in order, and the index that returns them
    ("users ORDER BY id", "users_pkey"),
    ("users ORDER BY id DESC", "users_pkey"),
    ("users ORDER BY first_name, id", "users_first_name_id_idx"),
    ("users ORDER BY first_name DESC, id DESC", "users_first_name_id_idx"),
    ("users ORDER BY last_name, id", "users_last_name_id_idx"),
    ("users ORDER BY last_name DESC, id DESC", "users_last_name_id_idx"),
    ("users ORDER BY first_name || ' ' || last_name, id", "users_display_name_id_idx"),
    ("users ORDER BY first_name || ' ' || last_name DESC, id DESC", "users_display_name_id_idx"),
    ("users ORDER BY age NULLS LAST, id", "users_age_id_idx"),
    ("users ORDER BY age DESC NULLS LAST, id DESC", "users_age_desc_id_desc_idx"),
    ("users ORDER BY email NULLS LAST, id", "users_email_id_idx"),
    ("users ORDER BY birth_date NULLS LAST, id", "users_birth_date_id_idx"),
    ("users ORDER BY birth_date DESC NULLS LAST, id DESC", "users_birth_date_desc_id_desc_idx"),
    ("users ORDER BY date_create, id", "users_date_create_id_idx"),
    ("users ORDER BY date_create DESC, id DESC", "users_date_create_id_idx"),
    ("users ORDER BY status, id", "users_status_id_idx"),
    ("users WHERE status = 'block' ORDER BY id", "users_status_id_idx"),
    ("users WHERE group_id = 7 ORDER BY id", "users_group_id_id_idx"),
    ("posts ORDER BY title, id", "posts_title_id_idx"),
    ("posts ORDER BY title DESC, id DESC", "posts_title_id_idx"),
    ("posts WHERE user_id = 7 ORDER BY id", "posts_user_id_id_idx"),
    ("computers ORDER BY name, id", "computers_name_id_idx"),
    ("computers ORDER BY name DESC, id DESC", "computers_name_id_idx"),
    ("computers WHERE owner_id = 7 ORDER BY id", "computers_owner_id_id_idx"),
    ("parent_child_associations WHERE parent_id = 7 ORDER BY id", "parent_child_associations_parent_id_id_idx"),
    ("parent_child_associations WHERE child_id = 7 ORDER BY id", "parent_child_associations_child_id_id_idx"),
]


@pytest.mark.parametrize(("rows", "index"), SORTS)
async def test_a_page_comes_in_order_from_an_index(filled, connect, rows, index):
    nodes, indexes = await plan_of(await connect(filled), f"SELECT * FROM {rows} LIMIT 30")
    assert (nodes, indexes) == (["Limit", "Index Scan"], {index})


@pytest.mark.parametrize("direction", ["", "DESC"])
async def test_groups_by_name_have_nothing_left_to_sort(filled, connect, direction):
    sql = f"SELECT * FROM groups ORDER BY name {direction}, id {direction} LIMIT 30"
    nodes, indexes = await plan_of(await connect(filled), sql)
    assert (nodes, indexes) == (["Limit", "Incremental Sort", "Index Scan"], {"groups_name_key"})


LOOKUPS = [
    # requested rows, and the index that finds them
    ("groups WHERE name = 'x'", "groups_name_key"),
    ("users WHERE first_name = 'x'", "users_first_name_id_idx"),
    ("users WHERE last_name = 'x'", "users_last_name_id_idx"),
    ("users WHERE email = 'x'", "users_email_id_idx"),
    ("users WHERE age = 7", "users_age"),
    ("users WHERE age IS NULL", "users_age"),
    ("users WHERE birth_date BETWEEN '1961-01-01' AND '1961-01-09'", "users_birth_date"),
    ("users WHERE words && ARRAY['w7', 'w8']", "users_words_idx"),
    ("users WHERE words @> ARRAY['w7']", "users_words_idx"),
    ("users WHERE group_id = ANY('{1,2,3}')", "users_group_id_id_idx"),
    ("posts WHERE user_id = ANY('{1,2,3}')", "posts_user_id_id_idx"),
    ("user_bios WHERE user_id = ANY('{1,2,3}')", "user_bios_user_id_key"),
    ("user_bios WHERE birth_city = 'x'", "user_bios_birth_city_idx"),
    ("""user_bios WHERE keys_to_ids_list @> '{"k": [7]}'""", "user_bios_keys_to_ids_list_idx"),
    ("computers WHERE owner_id = ANY('{1,2,3}')", "computers_owner_id_id_idx"),
    ("computers WHERE serial = 's7'", "computers_serial_idx"),
    ("parents WHERE name = 'x'", "parents_name_idx"),
    ("children WHERE name = 'x'", "children_name_idx"),
    ("persons WHERE name = 'x'", "persons_name_idx"),
    ("photos WHERE name = 'x'", "photos_name_idx"),
    ("""photos WHERE meta @> '{"n": 7}'""", "photos_meta_idx"),
]


@pytest.mark.parametrize(("rows", "index"), LOOKUPS)
async def test_a_filter_finds_its_rows_by_an_index(filled, connect, rows, index):
    _, indexes = await plan_of(await connect(filled), f"SELECT * FROM {rows}")
    assert len(indexes) == 1
    assert indexes.pop().startswith(index)
