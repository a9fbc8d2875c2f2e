"""The public door: what a module of one's own resources imports. Nothing is defined here."""

from pypika import Table, functions

from querybuild.arrays import array
from querybuild.catalog import Catalog, CatalogError
from querybuild.errors import ApiError, BadRequest
from querybuild.hooks import Hooks, Written
from querybuild.operators import JSONB_CONTAINS
from querybuild.query import Change, Identifier, LinkageChange
from querybuild.resource import (
    RELATIONSHIP_METHODS,
    RESOURCE_METHODS,
    Attribute,
    Id,
    Link,
    Operator,
    Resource,
    ToMany,
    ToOne,
)
from querybuild.terms import Template
from querybuild.types import (
    BIGINT,
    BOOL,
    BYTEA,
    CHAR,
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    NUMERIC_NUMBER,
    OPAQUE,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    enum,
)
from querybuild.values import ValueFault
from server.execution.hooks import Connection, Writing
from server.handlers.custom import CustomHandler

__all__ = [
    "BIGINT",
    "BOOL",
    "BYTEA",
    "CHAR",
    "DATE",
    "FLOAT",
    "INT",
    "INTERVAL",
    "JSON",
    "JSONB",
    "JSONB_CONTAINS",
    "NUMERIC",
    "NUMERIC_NUMBER",
    "OPAQUE",
    "REAL",
    "RELATIONSHIP_METHODS",
    "RESOURCE_METHODS",
    "SMALLINT",
    "TEXT",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "UUID",
    "ApiError",
    "Attribute",
    "BadRequest",
    "Catalog",
    "CatalogError",
    "Change",
    "Connection",
    "CustomHandler",
    "Hooks",
    "Id",
    "Identifier",
    "Link",
    "LinkageChange",
    "Operator",
    "Resource",
    "Table",
    "Template",
    "ToMany",
    "ToOne",
    "ValueFault",
    "Writing",
    "Written",
    "array",
    "enum",
    "functions",
]
