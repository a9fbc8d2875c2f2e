"""The SQL of the floor's GET requests: texts, each of which is a whole answer, and so one snapshot.

A total is a column, a to-one include is the columns of a join, and a to-many include is the rows of a union. `%d` are
the limit and the offset: they are written into the text, so that it is planned for them, once.
"""

from __future__ import annotations

Statements = tuple[str, str]
"""Without a total and with an exact one."""


def _counted(sql: str, matching: str) -> Statements:
    """Return the statement without and with a total. sql: with `{total}` after the columns of the primary rows.
    matching: all of them, as FROM and WHERE.
    """
    return sql.replace("{total}", ""), sql.replace("{total}", f", (SELECT count(*) {matching}) AS total")


USER_COLUMNS = (
    "u.id, u.first_name, u.last_name, u.first_name || ' ' || u.last_name AS display_name, u.age, u.email, u.status,"
    " u.birth_date::text AS birth_date, u.gender, u.words, u.date_create::text AS date_create"
)
_USERS = f"SELECT {USER_COLUMNS}{{total}} FROM users u"
DETAIL = f"SELECT {USER_COLUMNS} FROM users u WHERE u.id = $1"
EVERYTHING = f"SELECT {USER_COLUMNS} FROM users u ORDER BY u.id"
LIST = _counted(f"{_USERS} ORDER BY u.id LIMIT %d OFFSET %d", "FROM users")
NAMED = _counted(
    "SELECT u.id, u.first_name, u.last_name, u.age{total} FROM users u ORDER BY u.id LIMIT %d OFFSET %d", "FROM users"
)
RELATED = _counted(f"{_USERS} WHERE u.group_id = $1 ORDER BY u.id LIMIT %d OFFSET %d", "FROM users WHERE group_id = $1")

# Names of groups are unique: the id is looked up once.
_IN_GROUP = "u.group_id = (SELECT g.id FROM groups g WHERE g.name = $1) AND u.age >= $2"
IN_GROUP = _counted(f"{_USERS} WHERE {_IN_GROUP} ORDER BY u.id LIMIT %d OFFSET %d", f"FROM users u WHERE {_IN_GROUP}")

# OFFSET 0 prevents a join, for which the planner would read all computers before the first user.
_OWNS = "EXISTS (SELECT FROM computers c WHERE c.owner_id = u.id AND c.serial LIKE $1 OFFSET 0)"
OWNING = _counted(
    f"{_USERS} WHERE {_OWNS} ORDER BY u.id LIMIT %d OFFSET %d",
    "FROM (SELECT DISTINCT owner_id FROM computers WHERE serial LIKE $1 AND owner_id IS NOT NULL) owners",
)

_IN_TREE = "u.age >= $1 AND (u.status = $2 OR NOT u.gender = $3)"
IN_TREE = _counted(
    f"{_USERS} WHERE {_IN_TREE} ORDER BY u.age DESC NULLS LAST, u.last_name, u.id LIMIT %d OFFSET %d",
    f"FROM users u WHERE {_IN_TREE}",
)

# Users, and then their computers in the columns of a user; the owner, at the end, tells them apart. One user more than
# the page holds is read, but none of its computers.
_WITH_COMPUTERS = (
    f"WITH page AS MATERIALIZED ({_USERS} ORDER BY u.id LIMIT %d OFFSET %d)"
    " SELECT page.*, NULL::bigint AS owner_id FROM page"
    f" UNION ALL SELECT c.id, c.name, c.serial, {', '.join(['NULL'] * 8)}{{empty}}, c.owner_id FROM computers c"
    " WHERE c.owner_id = ANY(ARRAY(SELECT id FROM page ORDER BY id LIMIT %d)) ORDER BY owner_id NULLS FIRST, id"
)
WITH_COMPUTERS = (
    _counted(_WITH_COMPUTERS.replace("{empty}", ""), "")[0],
    _counted(_WITH_COMPUTERS.replace("{empty}", ", NULL"), "FROM users")[1],
)

# The page is found by the ids alone, from the index: the rows before it are not read.
COMPUTERS = _counted(
    "SELECT c.id, c.name, c.serial{total} FROM computers c"
    " WHERE c.id = ANY(ARRAY(SELECT id FROM computers ORDER BY id LIMIT %d OFFSET %d)) ORDER BY c.id",
    "FROM computers",
)
COMPUTERS_AFTER = "SELECT c.id, c.name, c.serial FROM computers c WHERE c.id > $1 ORDER BY c.id LIMIT %d"
WITH_OWNER = _counted(
    f"SELECT c.id, c.name, c.serial, {USER_COLUMNS}{{total}} FROM"
    " (SELECT * FROM computers ORDER BY name, id LIMIT %d OFFSET %d) c"
    " LEFT JOIN users u ON u.id = c.owner_id ORDER BY c.name, c.id",
    "FROM computers",
)
WITH_OWNER_AND_GROUP = _counted(
    f"SELECT c.id, c.name, c.serial, {USER_COLUMNS}, g.id, g.name{{total}} FROM"
    " (SELECT * FROM computers ORDER BY id LIMIT %d OFFSET %d) c"
    " LEFT JOIN users u ON u.id = c.owner_id LEFT JOIN groups g ON g.id = u.group_id ORDER BY c.id",
    "FROM computers",
)
