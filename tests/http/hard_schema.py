"""Resources of the database hard, as `waterspout inspect` declares them."""

from datetime import date
from decimal import Decimal

from waterspout import (
    BIGINT,
    BOOL,
    CHAR,
    DATE,
    INT,
    JSONB,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMPTZ,
    UUID,
    Attribute,
    Function,
    Id,
    Link,
    Resource,
    ToMany,
    ToOne,
    array,
    composite,
    enum,
)

CATEGORY = Resource(
    "category",
    "/categories",
    "categories",
    id=Id("category_id", INT),
    relationships=(
        ToOne("parent", "category"),
        ToOne("boss", "person", column="boss"),
        ToMany("children", "category", foreign_key="parent_id"),
        ToMany("interests", "interest", foreign_key="category_id"),
        ToMany(
            "people",
            "person",
            through=Link("interests", "category_id", "person_id"),
            methods=frozenset({"read", "remove"}),
        ),
    ),
)

# It shows the rows of the tables that inherit from it, too
CITY = Resource(
    "city",
    "/cities",
    "cities",
    id=Id("id", INT, unique=True),
    relationships=(
        ToOne("mayor", "person", column="mayor"),
        ToMany("people_by_home", "person", foreign_key="home_id"),
        ToMany("people_by_work", "person", foreign_key="work_id"),
    ),
)

COUNTRY = Resource(
    "country",
    "/countries",
    "countries",
    id=Id("id", INT),
    attributes=(Attribute("code", CHAR, required=True, max_length=2),),
    relationships=(
        ToMany("harbours", "harbour", foreign_key="country_code", references="code"),
    ),
)

# The trigger keep runs before a DELETE: if it keeps the row, declare soft_delete=True
# Row-level security is on: see the setting row_security
DOCUMENT = Resource(
    "document",
    "/documents",
    "documents",
    id=Id("id", INT),
    attributes=(
        Attribute("slug", TEXT, filled=True),
        Attribute("title", TEXT, required=True),
    ),
)

EVENT = Resource(
    "event",
    "/events",
    "events",
    id=Id("id", INT),
    client_ids=True,
    attributes=(Attribute("kind", TEXT),),
)

GROWN_PERSON = Resource(
    "grown_person",
    "/grown_people",
    "grown_people",
    id=Id("number", INT),
    attributes=(
        Attribute("name", TEXT, required=True),
        Attribute("same", TEXT, creatable=False, updatable=False),
    ),
)

HARBOUR = Resource(
    "harbour",
    "/harbours",
    "harbours",
    id=Id("id", INT),
    relationships=(
        ToOne("country", "country", column="country_code", references="code"),
    ),
)

HOME_TOWN = Resource(
    "home_town",
    "/home_towns",
    "home_towns",
    id=Id("id", INT, unique=True),
    attributes=(
        Attribute("name", TEXT, nullable=True),
        Attribute("city", INT, nullable=True),
    ),
    methods=frozenset({"list", "detail"}),
)

INTEREST = Resource(
    "interest",
    "/interests",
    "interests",
    id=Id("id", INT),
    attributes=(Attribute("since", DATE, required=True),),
    relationships=(
        ToOne("person", "person", nullable=False),
        ToOne("category", "category", nullable=False),
    ),
)

KEEPING = Resource(
    "keeping",
    "/keepings",
    "keepings",
    id=Id(unique=True, columns=("person", "building"), types=(INT, TEXT)),
    attributes=(
        Attribute("person", INT, nullable=True),
        Attribute("name", TEXT, nullable=True),
        Attribute("building", TEXT, nullable=True),
        Attribute("shelves", BIGINT, nullable=True),
    ),
    methods=frozenset({"list", "detail"}),
)

MOOD = Resource(
    "mood",
    "/moods",
    "moods",
    id=Id("mood", enum("happy", "so so", 'it\'s "bad"')),
    client_ids=True,
    attributes=(Attribute("meaning", TEXT, nullable=True),),
    relationships=(
        ToMany(
            "prices",
            "price",
            foreign_key="mood",
            methods=frozenset({"read", "add"}),
        ),
    ),
)

NAME = Resource(
    "name",
    "/names",
    "names",
    id=Id("name", TEXT, unique=True),
    attributes=(Attribute("people", BIGINT, nullable=True),),
    methods=frozenset({"list", "detail"}),
)

ORDER = Resource(
    "order",
    "/orders",
    "orders",
    description='What somebody "ordered",\nand when.',
    attributes=(
        Attribute("select", TEXT, nullable=True),
        Attribute("class", TEXT, nullable=True),
        Attribute("order_type", TEXT, column="type", nullable=True),
        Attribute("order_links", JSONB, column="links", nullable=True),
        Attribute("a_b", TEXT, column="a.b", nullable=True),
        Attribute("order_a_b", TEXT, column="a b", nullable=True),
        Attribute("order_a_b_2", TEXT, column="A_B", nullable=True),
        Attribute("it_s", TEXT, column="it's", nullable=True),
        Attribute("say_hi", TEXT, column='say "hi"', nullable=True),
        Attribute("back_slash", TEXT, column="back\\slash", nullable=True),
        Attribute("größe", INT, nullable=True),
        Attribute("column_13", TEXT, column="🙂", nullable=True),
        Attribute("column_14", TEXT, column="_", nullable=True),
    ),
)

PERSON = Resource(
    "person",
    "/people",
    "people",
    id=Id("id", INT),
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(
        ToOne("home", "city"),
        ToOne("work", "city"),
        ToMany("categories", "category", foreign_key="boss"),
        ToMany(
            "categories_through_interests",
            "category",
            through=Link("interests", "person_id", "category_id"),
            methods=frozenset({"read", "remove"}),
        ),
        ToMany("cities", "city", foreign_key="mayor"),
        ToMany("from_people", "person", through=Link("friends", "to_id", "from_id")),
        ToMany("interests", "interest", foreign_key="person_id"),
        ToOne(
            "profile",
            "profile",
            foreign_key="person_id",
            methods=frozenset({"read"}),
        ),
        ToMany(
            "shelf_keepers",
            "shelf_keeper",
            foreign_key="person_id",
            methods=frozenset({"read", "add"}),
        ),
        ToMany(
            "shelves",
            "shelf",
            through=Link("shelf_keepers", "person_id", ("building", "number")),
        ),
        ToMany("to_people", "person", through=Link("friends", "from_id", "to_id")),
        ToMany("visits", "visit", foreign_key="person_id"),
    ),
)

PRICE = Resource(
    "price",
    "/prices",
    "prices",
    id=Id(
        columns=("item", "day", "size", "mood"),
        types=(SMALLINT, DATE, CHAR, enum("happy", "so so", 'it\'s "bad"')),
    ),
    attributes=(
        Attribute("item", SMALLINT, required=True, updatable=False),
        Attribute("day", DATE, required=True, updatable=False),
        Attribute("size", CHAR, required=True, max_length=2, updatable=False),
        Attribute("amount", NUMERIC, nullable=True),
    ),
    relationships=(ToOne("mood", "mood", column="mood", nullable=False),),
)

PROFILE = Resource(
    "profile",
    "/profiles",
    "profiles",
    id=Id("person_id", INT),
    client_ids=True,
    attributes=(Attribute("motto", TEXT, nullable=True),),
    relationships=(
        ToOne(
            "person",
            "person",
            nullable=False,
            required=False,
            methods=frozenset({"read"}),
        ),
    ),
)

# CHECK (first < last)
SAMPLE = Resource(
    "sample",
    "/samples",
    "samples",
    id=Id("sample_id", INT),
    attributes=(
        Attribute("a_mood", enum("happy", "so so", 'it\'s "bad"'), required=True),
        Attribute("moods", array(enum("happy", "so so", 'it\'s "bad"')), nullable=True),
        Attribute("of_day", enum("happy", "so so", 'it\'s "bad"')),
        Attribute("share", INT, nullable=True, minimum=0, maximum=100),
        Attribute("size", CHAR, nullable=True, max_length=1, pattern="S|M"),
        Attribute("colour", enum("red", "green"), required=True),
        Attribute("born", DATE, nullable=True, minimum=date(1900, 1, 1)),
        Attribute("code", TEXT, required=True, min_length=2, max_length=8),
        # CHECK is_odd(odd)
        # CHECK ((odd % 2) = 1)
        Attribute("odd", INT, nullable=True),
        Attribute("total", INT, nullable=True, creatable=False, updatable=False),
        Attribute("tags", array(TEXT)),
        Attribute("first", INT, nullable=True),
        Attribute("last", INT, nullable=True),
    ),
)

SHELF_BOARD = Resource(
    "shelf_board",
    "/shelf_boards",
    "shelf_boards",
    id=Id(columns=("building", "shelf", "board"), types=(TEXT, INT, BIGINT)),
    attributes=(
        Attribute("board", BIGINT, updatable=False),
        Attribute("width", INT, required=True),
    ),
    relationships=(
        ToOne("shelf", "shelf", nullable=False, columns=("building", "shelf")),
    ),
)

SHELF_KEEPER = Resource(
    "shelf_keeper",
    "/shelf_keepers",
    "shelf_keepers",
    id=Id(columns=("person_id", "number", "building"), types=(INT, INT, TEXT)),
    attributes=(Attribute("since", DATE, nullable=True),),
    relationships=(
        ToOne("shelf", "shelf", nullable=False, columns=("building", "number")),
        ToOne("person", "person", nullable=False),
    ),
)

SHELF = Resource(
    "shelf",
    "/shelves",
    "shelves",
    id=Id(columns=("building", "number"), types=(TEXT, INT)),
    attributes=(
        Attribute("building", TEXT, required=True, updatable=False),
        Attribute("number", INT, required=True, updatable=False),
    ),
    relationships=(
        ToMany(
            "people",
            "person",
            through=Link("shelf_keepers", ("building", "number"), "person_id"),
        ),
        ToMany(
            "shelf_boards",
            "shelf_board",
            foreign_key=("building", "shelf"),
            methods=frozenset({"read", "add"}),
        ),
        ToMany(
            "shelf_keepers",
            "shelf_keeper",
            foreign_key=("building", "number"),
            methods=frozenset({"read", "add"}),
        ),
    ),
)

VISIT = Resource(
    "visit",
    "/visits",
    "visits",
    id=Id("id", BIGINT, unique=True),
    attributes=(Attribute("at", TIMESTAMPTZ, required=True),),
    relationships=(ToOne("person", "person"),),
)

WORKPLACE = Resource(
    "workplace",
    "/workplaces",
    "workplaces",
    id=Id("number", INT, unique=True),
    attributes=(
        Attribute("name", TEXT, nullable=True),
        Attribute("days", BIGINT, nullable=True),
    ),
    relationships=(ToOne("mayor", "person", column="mayor"),),
    methods=frozenset({"list", "detail"}),
)

日本 = Resource(
    "日本",
    "/u65e5u672c",
    "日本",
    id=Id("code", TEXT),
    client_ids=True,
    attributes=(
        Attribute("日本_id", INT, column="id", required=True),
        Attribute(
            "first_name",
            TEXT,
            column="FirstName",
            description=(
                "The name that friends use: a long comment is broken into several "
                "lines, between two words."
            ),
        ),
    ),
)

ORDER_STATUS = Resource(
    "order_status",
    "/order_statuses",
    "OrderStatuses",
    schema="Sales Dept",
    id=Id("ID", INT),
    attributes=(Attribute("name", TEXT, column="Name", required=True, max_length=20),),
    relationships=(
        ToMany("sales_dept_orders", "sales_dept_order", foreign_key="Status ID"),
    ),
)

SALES_DEPT_ORDER = Resource(
    "sales_dept_order",
    "/sales_dept_orders",
    "orders",
    schema="Sales Dept",
    id=Id("id", UUID),
    attributes=(
        # CHECK (("Unit Price ($)" >= 0.5) AND ("Unit Price ($)" < (1000)::numeric))
        Attribute(
            "unit_price",
            NUMERIC,
            column="Unit Price ($)",
            nullable=True,
            minimum=Decimal("0.5"),
            maximum=1000,
        ),
    ),
    relationships=(
        ToOne("status", "order_status", column="Status ID", nullable=False),
    ),
)

FRIEND_OF = Function("friend_of", arguments=(Attribute("person", INT, required=True),))

GLOOMY = Function(
    "gloomy",
    arguments=(
        Attribute("mood", enum("happy", "so so", 'it\'s "bad"'), required=True),
    ),
)

MAYOR_OF = Function(
    "mayor_of",
    arguments=(Attribute("city", INT, required=True),),
    returns="person",
)

NOTHING = Function("nothing")

PEOPLE_FUNCTION = Function("people", path="/people-function")

PEOPLE_BY_HOME = Function(
    "people",
    path="/people-by-home",
    arguments=(Attribute("home", INT, required=True),),
)

PEOPLE_CALLED = Function(
    "people_called",
    description="People with such a name.",
    arguments=(
        Attribute("name", TEXT, column="p_name", required=True),
        Attribute("limit", INT, column="p_limit"),
    ),
    returns="person",
)

PERCENTS = Function(
    "percents",
    arguments=(Attribute("share", INT, required=True, minimum=0, maximum=100),),
)

SAY_HI = Function(
    'say "hi"',
    path="/say-hi",
    arguments=(
        Attribute("filter", TEXT, required=True),
        Attribute("page", INT, required=True),
        Attribute("include", BOOL, required=True),
        Attribute("sort", DATE, required=True),
        Attribute("fields", array(TEXT), required=True),
        Attribute("id", BIGINT, required=True),
        Attribute("type", UUID, required=True),
        Attribute("select", JSONB, required=True),
        Attribute("from", TEXT),
    ),
)

SHELVES_IN = Function(
    "shelves_in",
    arguments=(Attribute("building", TEXT, required=True),),
    returns="shelf",
)

SIZE_OF = Function("size_of", arguments=(Attribute("what", TEXT, required=True),))

SPOT_OF = Function(
    "spot_of",
    arguments=(
        Attribute(
            "spot",
            composite(
                "spot",
                x=INT,
                moods=array(enum("happy", "so so", 'it\'s "bad"')),
                price=NUMERIC,
            ),
            required=True,
        ),
        Attribute("moods", array(enum("happy", "so so", 'it\'s "bad"')), required=True),
        Attribute("share", INT, required=True, minimum=0, maximum=50),
        Attribute("pieces", array(INT), required=True),
    ),
)

SPOTS = Function(
    "spots",
    arguments=(
        Attribute(
            "spots",
            array(
                composite(
                    "spot",
                    x=INT,
                    moods=array(enum("happy", "so so", 'it\'s "bad"')),
                    price=NUMERIC,
                ),
            ),
            required=True,
        ),
    ),
)

# SECURITY DEFINER: it does all that the role “waterspout” may do
ORDERS_ABOVE = Function(
    "OrdersAbove",
    path="/orders-above",
    schema="Sales Dept",
    arguments=(
        Attribute("unit_price", NUMERIC, column="Unit Price ($)", required=True),
        Attribute("grosse", INT, column="größe"),
    ),
    returns="sales_dept_order",
)

SALES_DEPT_PEOPLE = Function("people", path="/sales-dept-people", schema="Sales Dept")

RESOURCES = [
    CATEGORY,
    CITY,
    COUNTRY,
    DOCUMENT,
    EVENT,
    GROWN_PERSON,
    HARBOUR,
    HOME_TOWN,
    INTEREST,
    KEEPING,
    MOOD,
    NAME,
    ORDER,
    PERSON,
    PRICE,
    PROFILE,
    SAMPLE,
    SHELF_BOARD,
    SHELF_KEEPER,
    SHELF,
    VISIT,
    WORKPLACE,
    日本,
    ORDER_STATUS,
    SALES_DEPT_ORDER,
    FRIEND_OF,
    GLOOMY,
    MAYOR_OF,
    NOTHING,
    PEOPLE_FUNCTION,
    PEOPLE_BY_HOME,
    PEOPLE_CALLED,
    PERCENTS,
    SAY_HI,
    SHELVES_IN,
    SIZE_OF,
    SPOT_OF,
    SPOTS,
    ORDERS_ABOVE,
    SALES_DEPT_PEOPLE,
]

# Not served:
#
# circular, total: no column of the view is known to be a key: name one in the hints,
# such as [tables.circular]: id = "id"
#
# no_column: it has no columns
#
# no_key: it has no key: add a primary key, or a unique index over columns that are NOT
# NULL, or name columns in the hints that are unique, in [tables.no_key]: id = "a"
#
# raising: its rows cannot be read, to look for a key: name one in the hints, in
# [tables.raising]: id = "id"

# Functions without a route:
#
# either(text), either(text, integer): several functions with this name take these
# arguments: rename one, or drop it
#
# friends_of(integer): it returns a set of rows: if these have ids of a resource, name
# its type; to publish it, write to the hints, in [functions.friends_of]: returns =
# "..."
#
# ids_of_people(): it returns a set of integer: if these have ids of a resource, name
# its type; to publish it, write to the hints, in [functions.ids_of_people]: returns =
# "..."
#
# largest(integer[]): it is VARIADIC, and a route has a fixed number of arguments: write
# one that takes an array
#
# ranked(): it returns a set of rows: if these have ids of a resource, name its type; it
# is VOLATILE, so that it may write: if it only reads, make it STABLE; to publish it,
# write to the hints, in [functions.ranked]: returns = "..." and method = "POST"
#
# rename(integer, text): it is VOLATILE, so that it may write: if it only reads, make it
# STABLE; to publish it, write to the hints, in [functions.rename]: method = "POST"
#
# rows_in(regclass): its argument “relation” is regclass, which no request can contain:
# write one that takes a text and casts it
#
# same(anyelement): its argument “one” is anyelement, which is no single type: write one
# with the type that you need
#
# twice(integer), unnamed(integer): its arguments have no names: CREATE OR REPLACE it
# with names
