"""The public door: what a module of one's own resources imports. Nothing is defined here."""

from pypika import Table, functions

from querybuild.declarations.arrays import array
from querybuild.declarations.catalog import Catalog, CatalogError
from querybuild.declarations.hooks import Hooks, Written
from querybuild.declarations.operators import JSONB_CONTAINS
from querybuild.declarations.resource import (
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
from querybuild.declarations.terms import Template
from querybuild.declarations.types import (
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
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, BadRequest
from querybuild.query import Change, Identifier, LinkageChange
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
