"""Writes of relationship routes, creates below an owner, and their statements. They are used like those of
`statements.py`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from querybuild.errors import ApiError, raise_all
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Context, View
from querybuild.query import Change, LinkMode, Owner
from serializers import pointers
from serializers.decode import decode_resource_document
from tests.catalog import CATALOG
from tests.planning import LIMITS
from tests.statements import LEAVING, ROW, TOKEN, Sent, linked


class LinkCase(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a relationship route and its statements: the lock of the row, then lock, detach and attach of the
    links. data: linkage as pairs of type and id. row: the statement that changes the key, if the key is in the row
    itself. left: the links of the relationship in the rows of `tests/sql/` after the write."""

    type: str
    id: str
    relationship: str
    mode: LinkMode
    data: Any
    left: list[Any]
    owner_lock: Sent | None = None
    row: Sent | None = None
    lock: Sent | None = None
    detach: Sent | None = None
    attach: Sent | None = None


AUTHOR_LOCK = Sent('SELECT "authors"."author_no" FROM "authors" WHERE "author_no"=$1 FOR NO KEY UPDATE', (1,))
AUTHOR_TAKEN = Sent('SELECT "authors"."author_no" FROM "authors" WHERE "author_no"=$1 FOR UPDATE', (1,))
NODE_LOCK = Sent('SELECT "nodes"."id" FROM "corner"."nodes" WHERE "id"=$1 FOR NO KEY UPDATE', (UUID(TOKEN),))
ARTICLE_LOCK = Sent('SELECT "articles"."id" FROM "corner"."articles" WHERE "id"=$1 FOR NO KEY UPDATE', ("a",))
TAG_LOCK = Sent('SELECT "tags"."id" FROM "tags" WHERE "id"=$1 FOR NO KEY UPDATE', (1,))

NODE_TAKEN = Sent('SELECT "nodes"."id" FROM "corner"."nodes" WHERE "id"=$1 FOR UPDATE', (UUID(TOKEN),))
ARTICLE_TAKEN = Sent('SELECT "articles"."id" FROM "corner"."articles" WHERE "id"=$1 FOR UPDATE', ("a",))
TAG_TAKEN = Sent('SELECT "tags"."id" FROM "tags" WHERE "id"=$1 FOR UPDATE', (1,))

LINKS = [
    # the key in the row itself
    LinkCase(
        type="article",
        id="a",
        relationship="editor",
        mode="replace",
        data=("author", "1"),
        left=[("a", 1), ("b", None)],
        row=Sent(
            'UPDATE "corner"."articles" SET "editor_id"='
            'COALESCE((SELECT "author_no" FROM "authors" WHERE "author_no"=$1 FOR KEY SHARE),$1)'
            ' WHERE "id"=$2 RETURNING "articles"."id"',
            (1, "a"),
        ),
    ),
    LinkCase(
        type="node",
        id=TOKEN,
        relationship="parent",
        mode="replace",
        data=None,
        left=[(False,)],
        row=Sent(
            'UPDATE "corner"."nodes" SET "parent_id"='
            'COALESCE((SELECT "id" FROM "corner"."nodes" WHERE "id"=$1 FOR KEY SHARE),$1)'
            ' WHERE "id"=$2 RETURNING "nodes"."id"',
            (None, UUID(TOKEN)),
        ),
    ),
    # the key in the rows of a to-many
    LinkCase(
        type="author",
        id="1",
        relationship="edited",
        mode="add",
        data=[("article", "b"), ("article", "a"), ("article", "b")],
        left=[("a", 1), ("b", 1)],
        owner_lock=AUTHOR_LOCK,
        lock=Sent(
            'SELECT "id","editor_id" FROM "corner"."articles" WHERE "id"=ANY($1) ORDER BY "id" FOR NO KEY UPDATE',
            (["b", "a"],),
        ),
        attach=Sent(
            'UPDATE "corner"."articles" SET "editor_id"=$1 WHERE "id"=ANY($2) AND "editor_id" IS DISTINCT FROM $1',
            (ROW, ["b", "a"]),
        ),
    ),
    LinkCase(
        type="author",
        id="2",
        relationship="edited",
        mode="remove",
        data=[("article", "b"), ("article", "a")],
        left=[("a", None), ("b", None)],
        owner_lock=Sent(AUTHOR_TAKEN.sql, (2,)),
        lock=Sent(
            'SELECT "id","editor_id" FROM "corner"."articles" WHERE "id"=ANY($1) AND "editor_id"=$2'
            ' ORDER BY "id" FOR NO KEY UPDATE',
            (["b", "a"], ROW),
        ),
        detach=Sent(
            'UPDATE "corner"."articles" SET "editor_id"=null WHERE "id"=ANY($1)',
            (LEAVING,),
        ),
    ),
    LinkCase(
        type="author",
        id="1",
        relationship="edited",
        mode="replace",
        data=[("article", "a")],
        left=[("a", 1), ("b", None)],
        owner_lock=AUTHOR_TAKEN,
        lock=Sent(
            'SELECT "id","editor_id" FROM "corner"."articles" WHERE "id"=ANY($1) OR "editor_id"=$2'
            ' ORDER BY "id" FOR NO KEY UPDATE',
            (["a"], ROW),
        ),
        detach=Sent('UPDATE "corner"."articles" SET "editor_id"=null WHERE "id"=ANY($1)', (LEAVING,)),
        attach=Sent(
            'UPDATE "corner"."articles" SET "editor_id"=$1 WHERE "id"=ANY($2) AND "editor_id" IS DISTINCT FROM $1',
            (ROW, ["a"]),
        ),
    ),
    # a relationship to its own type
    LinkCase(
        type="node",
        id=TOKEN,
        relationship="children",
        mode="add",
        data=[("node", TOKEN)],
        left=[(True,)],
        owner_lock=NODE_LOCK,
        lock=Sent(
            'SELECT "id","parent_id" FROM "corner"."nodes" WHERE "id"=ANY($1) ORDER BY "id" FOR NO KEY UPDATE',
            ([UUID(TOKEN)],),
        ),
        attach=Sent(
            'UPDATE "corner"."nodes" SET "parent_id"=$1 WHERE "id"=ANY($2) AND "parent_id" IS DISTINCT FROM $1',
            (ROW, [UUID(TOKEN)]),
        ),
    ),
    LinkCase(
        type="node",
        id=TOKEN,
        relationship="children",
        mode="remove",
        data=[("node", TOKEN)],
        left=[(False,)],
        owner_lock=NODE_TAKEN,
        lock=Sent(
            'SELECT "id","parent_id" FROM "corner"."nodes" WHERE "id"=ANY($1) AND "parent_id"=$2'
            ' ORDER BY "id" FOR NO KEY UPDATE',
            ([UUID(TOKEN)], ROW),
        ),
        detach=Sent(
            'UPDATE "corner"."nodes" SET "parent_id"=null WHERE "id"=ANY($1)',
            (LEAVING,),
        ),
    ),
    # the other direction of a to-one relationship
    LinkCase(
        type="author",
        id="1",
        relationship="desk",
        mode="replace",
        data=("desk", "2"),
        left=[(1, None), (2, 1)],
        owner_lock=AUTHOR_TAKEN,
        lock=Sent(
            'SELECT "id","author_no" FROM "corner"."desks" WHERE "id"=ANY($1) OR "author_no"=$2'
            ' ORDER BY "id" FOR NO KEY UPDATE',
            ([2], ROW),
        ),
        detach=Sent('UPDATE "corner"."desks" SET "author_no"=null WHERE "id"=ANY($1)', (LEAVING,)),
        attach=Sent(
            'UPDATE "corner"."desks" SET "author_no"=$1 WHERE "id"=ANY($2) AND "author_no" IS DISTINCT FROM $1',
            (ROW, [2]),
        ),
    ),
    LinkCase(
        type="author",
        id="1",
        relationship="desk",
        mode="replace",
        data=None,
        left=[(1, None), (2, None)],
        owner_lock=AUTHOR_TAKEN,
        lock=Sent(
            'SELECT "id","author_no" FROM "corner"."desks" WHERE "id"=ANY($1) OR "author_no"=$2'
            ' ORDER BY "id" FOR NO KEY UPDATE',
            ([], ROW),
        ),
        detach=Sent('UPDATE "corner"."desks" SET "author_no"=null WHERE "id"=ANY($1)', (LEAVING,)),
        attach=Sent(
            'UPDATE "corner"."desks" SET "author_no"=$1 WHERE "id"=ANY($2) AND "author_no" IS DISTINCT FROM $1',
            (ROW, []),
        ),
    ),
    # a link table, from both sides
    LinkCase(
        type="article",
        id="b",
        relationship="tags",
        mode="add",
        data=[("tag", "2"), ("tag", "1"), ("tag", "2")],
        left=[("a", 1), ("a", 2), ("b", 1), ("b", 2)],
        owner_lock=Sent(ARTICLE_LOCK.sql, ("b",)),
        lock=Sent('SELECT "id",null FROM "tags" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', ([2, 1],)),
        attach=Sent(
            'INSERT INTO "corner"."article_tags" ("article_id","tag_id")'
            " SELECT $1::text,unnest($2::int4[]) ON CONFLICT DO NOTHING",
            (ROW, [2, 1]),
        ),
    ),
    LinkCase(
        type="article",
        id="a",
        relationship="tags",
        mode="remove",
        data=[("tag", "2"), ("tag", "77")],
        left=[("a", 1)],
        owner_lock=ARTICLE_TAKEN,
        detach=Sent('DELETE FROM "corner"."article_tags" WHERE "article_id"=$1 AND "tag_id"=ANY($2)', (ROW, [2, 77])),
    ),
    LinkCase(
        type="tag",
        id="1",
        relationship="articles",
        mode="remove",
        data=[("article", "a")],
        left=[("a", 2)],
        owner_lock=TAG_TAKEN,
        detach=Sent('DELETE FROM "corner"."article_tags" WHERE "tag_id"=$1 AND "article_id"=ANY($2)', (ROW, ["a"])),
    ),
    LinkCase(
        type="tag",
        id="1",
        relationship="articles",
        mode="replace",
        data=[("article", "b")],
        left=[("a", 2), ("b", 1)],
        owner_lock=TAG_TAKEN,
        lock=Sent('SELECT "id",null FROM "corner"."articles" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', (["b"],)),
        detach=Sent('DELETE FROM "corner"."article_tags" WHERE "tag_id"=$1 AND "article_id"<>ALL($2)', (ROW, ["b"])),
        attach=Sent(
            'INSERT INTO "corner"."article_tags" ("tag_id","article_id")'
            " SELECT $1::int4,unnest($2::text[]) ON CONFLICT DO NOTHING",
            (ROW, ["b"]),
        ),
    ),
]


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is created below a to-many relationship of another resource, and its statements: the lock of the
    owner, the row, and for a link table lock and attach."""

    owner: Owner
    data: dict[str, Any]
    owner_lock: Sent
    row: Sent
    lock: Sent | None = None
    attach: Sent | None = None

    def planned(self) -> PlannedWrite:
        parent = CATALOG.by_type[self.owner.type]
        relationship = parent.relationship(self.owner.relationship)
        assert relationship is not None
        target = CATALOG.target(relationship)
        errors: list[ApiError] = []
        body = msgspec.json.encode({"data": {"type": target.type} | self.data})
        change = decode_resource_document(body, Change(kind="create", type=None), errors, LIMITS)
        assert change is not None
        joined = msgspec.structs.replace(change, owner=self.owner)
        write = plan_write(joined, target, View(CATALOG), Context(), pointers, errors)
        raise_all(errors)
        return write


AUTHOR_SHARE = Sent('SELECT "author_no" FROM "authors" WHERE "author_no"=$1 FOR KEY SHARE', (1,))

JOINS = [
    # a key that may not be null, and one that may
    Join(
        owner=Owner("author", "1", "articles"),
        data={"id": "n", "attributes": {"title": "x"}},
        owner_lock=AUTHOR_SHARE,
        row=Sent(
            'INSERT INTO "corner"."articles" ("id","title","author_id") VALUES ($1,$2,$3) RETURNING "articles"."id"',
            ("n", "x", 1),
        ),
    ),
    Join(
        owner=Owner("author", "1", "edited"),
        data={"attributes": {"title": "x"}, "relationships": linked(author=("author", "2"))},
        owner_lock=AUTHOR_SHARE,
        row=Sent(
            'INSERT INTO "corner"."articles" ("title","author_id","editor_id") VALUES ($1,$2,$3)'
            ' RETURNING "articles"."id"',
            ("x", 2, 1),
        ),
    ),
    # the document repeats what the path says
    Join(
        owner=Owner("author", "1", "articles"),
        data={"attributes": {"title": "x"}, "relationships": linked(author=("author", "1"))},
        owner_lock=AUTHOR_SHARE,
        row=Sent(
            'INSERT INTO "corner"."articles" ("title","author_id") VALUES ($1,$2) RETURNING "articles"."id"', ("x", 1)
        ),
    ),
    Join(
        owner=Owner("node", TOKEN, "children"),
        data={"attributes": {"title": "x"}},
        owner_lock=Sent('SELECT "id" FROM "corner"."nodes" WHERE "id"=$1 FOR KEY SHARE', (UUID(TOKEN),)),
        row=Sent(
            'INSERT INTO "corner"."nodes" ("Mixed Case","parent_id") VALUES ($1,$2) RETURNING "nodes"."id"',
            ("x", UUID(TOKEN)),
        ),
    ),
    # a link table, from both sides
    Join(
        owner=Owner("article", "a", "tags"),
        data={"attributes": {"name": "new"}},
        owner_lock=Sent('SELECT "id" FROM "corner"."articles" WHERE "id"=$1 FOR KEY SHARE', ("a",)),
        row=Sent('INSERT INTO "tags" ("name") VALUES ($1) RETURNING "tags"."id"', ("new",)),
        lock=Sent('SELECT "id",null FROM "corner"."articles" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', (["a"],)),
        attach=Sent(
            'INSERT INTO "corner"."article_tags" ("tag_id","article_id")'
            " SELECT $1::int4,unnest($2::text[]) ON CONFLICT DO NOTHING",
            (ROW, ["a"]),
        ),
    ),
    Join(
        owner=Owner("tag", "1", "articles"),
        data={"attributes": {"title": "x"}, "relationships": linked(author=("author", "1"))},
        owner_lock=Sent('SELECT "id" FROM "tags" WHERE "id"=$1 FOR KEY SHARE', (1,)),
        row=Sent(
            'INSERT INTO "corner"."articles" ("title","author_id") VALUES ($1,$2) RETURNING "articles"."id"', ("x", 1)
        ),
        lock=Sent('SELECT "id",null FROM "tags" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', ([1],)),
        attach=Sent(
            'INSERT INTO "corner"."article_tags" ("article_id","tag_id")'
            " SELECT $1::text,unnest($2::int4[]) ON CONFLICT DO NOTHING",
            (ROW, [1]),
        ),
    ),
]
