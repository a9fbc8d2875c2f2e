"""The public door: what a module of one's own resources imports. Nothing is defined here."""

from pypika import Table, functions

from querybuild.declarations.access import ANYONE, NOW, SIGNED_IN, SUBJECT, Allow, Claim, Role, Scope
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
from querybuild.errors import ApiError, BadRequest, Unauthenticated
from querybuild.principal import ANONYMOUS, Principal
from querybuild.query import Change, Identifier, LinkageChange
from server.execution.hooks import Connection, Writing
from server.handlers.custom import CustomHandler

__all__ = [
    "ANONYMOUS",
    "ANYONE",
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
    "NOW",
    "NUMERIC",
    "NUMERIC_NUMBER",
    "OPAQUE",
    "REAL",
    "RELATIONSHIP_METHODS",
    "RESOURCE_METHODS",
    "SIGNED_IN",
    "SMALLINT",
    "SUBJECT",
    "TEXT",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "UUID",
    "Allow",
    "ApiError",
    "Attribute",
    "BadRequest",
    "Catalog",
    "CatalogError",
    "Change",
    "Claim",
    "Connection",
    "CustomHandler",
    "Hooks",
    "Id",
    "Identifier",
    "Link",
    "LinkageChange",
    "Operator",
    "Principal",
    "Resource",
    "Role",
    "Scope",
    "Table",
    "Template",
    "ToMany",
    "ToOne",
    "Unauthenticated",
    "ValueFault",
    "Writing",
    "Written",
    "array",
    "enum",
    "functions",
]
