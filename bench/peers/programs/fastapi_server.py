"""Runs FastAPI-JSONAPI over the tables of the benchmark, as its documentation sets it up for production.

In: the URL of a migrated database, a port, the size of the pool. Out: a server on that port. It runs in the Python of
its own environment, and must not import the project.

Differences to the example of the documentation: the session dependency is a coroutine, because a plain function runs in
a thread for every request; there are no trailing slashes; and `any` over a to-many relationship is a custom filter,
because 3.0.0 documents it but does not have it."""

# The library declares with lists and dictionaries of classes.
# ruff: noqa: RUF012

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Annotated, Any, ClassVar

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.responses import ORJSONResponse
from fastapi_jsonapi import ApplicationBuilder
from fastapi_jsonapi.data_layers.sqla.query_building import build_filter_expressions
from fastapi_jsonapi.misc.sqla.generics.base import ViewBaseGeneric
from fastapi_jsonapi.schema import get_schema_from_field_annotation
from fastapi_jsonapi.schema_base import BaseModel
from fastapi_jsonapi.types_metadata import RelationshipInfo
from fastapi_jsonapi.types_metadata.custom_filter_sql import CustomFilterSQLA
from fastapi_jsonapi.views import Operation, OperationConfig
from pydantic import ConfigDict
from sqlalchemy import ARRAY, ForeignKey, Text, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.schema import FetchedValue

sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(expire_on_commit=False)
ROWS = 1_000_000
"""The longest page: as many rows as any run has."""


class Table(DeclarativeBase):
    pass


class Group(Table):
    __tablename__ = "groups"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    users: Mapped[list["User"]] = relationship(back_populates="group")


class User(Table):
    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    first_name: Mapped[str]
    last_name: Mapped[str]
    age: Mapped[int | None]
    email: Mapped[str | None]
    status: Mapped[str]
    birth_date: Mapped[date | None]
    gender: Mapped[str | None]
    words: Mapped[list[str]] = mapped_column(ARRAY(Text))
    date_create: Mapped[date] = mapped_column(server_default=FetchedValue())
    group_id: Mapped[int | None] = mapped_column(ForeignKey("groups.id"))
    group: Mapped[Group | None] = relationship(back_populates="users")
    computers: Mapped[list["Computer"]] = relationship(back_populates="owner")

    @hybrid_property
    def display_name(self) -> str:
        return self.first_name + " " + self.last_name


class Computer(Table):
    __tablename__ = "computers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    serial: Mapped[str | None]
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    owner: Mapped[User | None] = relationship(back_populates="computers")


class AnyFilter(CustomFilterSQLA):
    """A custom filter: a related row matches the filter in `val`."""

    def get_expression(self, schema_field: Any, model_column: Any, value: Any, operator: str) -> Any:
        related = model_column.property.mapper.class_
        schema = get_schema_from_field_annotation(schema_field)
        return model_column.any(build_filter_expressions(value, schema, related, related.__tablename__))


class Schema(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class GroupAttributes(Schema):
    name: str


class GroupSchema(GroupAttributes):
    id: int
    users: Annotated[list["UserSchema"] | None, RelationshipInfo(resource_type="user", many=True)] = None


class UserAttributes(Schema):
    first_name: str
    last_name: str
    age: int | None = None
    email: str | None = None
    status: str = "active"
    birth_date: date | None = None
    gender: str | None = None
    words: list[str] = []


class UserRelationships(Schema):
    computers: Annotated[
        list["ComputerSchema"] | None, RelationshipInfo(resource_type="computer", many=True), AnyFilter(op="any")
    ] = None
    group: Annotated[GroupSchema | None, RelationshipInfo(resource_type="group")] = None


class UserSchema(UserAttributes, UserRelationships):
    id: int
    display_name: str
    date_create: date


class UserInSchema(UserAttributes, UserRelationships):
    pass


class UserPatchSchema(UserInSchema):
    first_name: str | None = None
    last_name: str | None = None


class ComputerAttributes(Schema):
    name: str
    serial: str | None = None
    owner: Annotated[UserSchema | None, RelationshipInfo(resource_type="user")] = None


class ComputerSchema(ComputerAttributes):
    id: int


class ComputerInSchema(ComputerAttributes):
    pass


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as opened:
        yield opened


class SessionDependency(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    session: AsyncSession = Depends(session)


async def session_of(_: ViewBaseGeneric, dependency: SessionDependency) -> dict[str, Any]:
    return {"session": dependency.session}


class View(ViewBaseGeneric):
    operation_dependencies: ClassVar = {
        Operation.ALL: OperationConfig(dependencies=SessionDependency, prepare_data_layer_kwargs=session_of)
    }


RESOURCES = (
    {"resource_type": "user", "path": "/users", "model": User, "schema": UserSchema}
    | {"schema_in_post": UserInSchema, "schema_in_patch": UserPatchSchema},
    {"resource_type": "group", "path": "/groups", "model": Group, "schema": GroupSchema},
    {"resource_type": "computer", "path": "/computers", "model": Computer, "schema": ComputerSchema}
    | {"schema_in_post": ComputerInSchema, "schema_in_patch": ComputerInSchema},
)


def make_app(url: str, pool_size: int) -> FastAPI:
    """Return the application."""
    dialect = make_url(url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(dialect, pool_size=pool_size, max_overflow=0)
    sessions.configure(bind=engine)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        builder = ApplicationBuilder(app)
        for resource in RESOURCES:
            builder.add_resource(tags=[], view=View, ending_slash=False, **resource)
        builder.initialize()
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan, default_response_class=ORJSONResponse)
    app.config = {"MAX_PAGE_SIZE": ROWS, "MAX_INCLUDE_DEPTH": 3}
    return app


def main() -> None:
    """Parse the command line and run the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pool-size", type=int, required=True)
    given = parser.parse_args()
    app = make_app(given.database_url, given.pool_size)
    options = {"workers": 1, "loop": "uvloop", "http": "httptools", "log_level": "warning", "access_log": False}
    uvicorn.run(app, host="127.0.0.1", port=given.port, **options)


if __name__ == "__main__":
    main()
