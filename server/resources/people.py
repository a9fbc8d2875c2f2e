"""Users and what belongs to them: groups, posts, biographies, computers."""

from __future__ import annotations

from waterspout import (
    DATE,
    INT,
    JSONB,
    TEXT,
    Attribute,
    Resource,
    Template,
    ToMany,
    ToOne,
    array,
    enum,
)

USER = Resource(
    "user",
    "/users",
    "users",
    attributes=(
        Attribute("first_name", TEXT, required=True, min_length=1, max_length=255),
        Attribute("last_name", TEXT, required=True, min_length=1, max_length=255),
        Attribute(
            "display_name",
            TEXT,
            # As the index users_display_name_id_idx has it.
            sql=lambda column: Template("{}||' '||{}", column("first_name"), column("last_name")),
        ),
        Attribute("age", INT, nullable=True, minimum=0, maximum=150),
        Attribute("email", TEXT, nullable=True, min_length=3, max_length=320),
        Attribute("status", enum("active", "block", "archive")),
        Attribute("birth_date", DATE, nullable=True),
        Attribute("gender", enum("female", "male", "other"), nullable=True),
        Attribute("words", array(TEXT), shape=list[str]),
        Attribute("date_create", DATE, creatable=False, updatable=False),
    ),
    relationships=(
        ToMany("computers", "computer", foreign_key="owner_id"),
        ToMany("posts", "post", foreign_key="user_id"),
        ToOne("bio", "user_bio", foreign_key="user_id"),
        ToOne("group", "group"),
    ),
)

GROUP = Resource(
    "group",
    "/groups",
    "groups",
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(ToMany("users", "user", foreign_key="group_id"),),
)

POST = Resource(
    "post",
    "/posts",
    "posts",
    attributes=(
        Attribute("title", TEXT, required=True, min_length=1, max_length=255),
        Attribute("body", TEXT, required=True),
    ),
    relationships=(ToOne("user", "user", nullable=False),),
)

USER_BIO = Resource(
    "user_bio",
    "/user-bio",
    "user_bios",
    attributes=(
        Attribute("birth_city", TEXT, required=True, required_on_update=True),
        Attribute("favourite_movies", TEXT, nullable=True),
        Attribute("keys_to_ids_list", JSONB, nullable=True, shape=dict[str, list[int]]),
    ),
    relationships=(ToOne("user", "user", nullable=False),),
)

COMPUTER = Resource(
    "computer",
    "/computers",
    "computers",
    attributes=(
        Attribute("name", TEXT, required=True, min_length=1, max_length=255),
        Attribute("serial", TEXT, nullable=True),
    ),
    relationships=(ToOne("owner", "user"),),
)
