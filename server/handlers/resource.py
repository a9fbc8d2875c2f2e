"""/{collection}/{id}: detail, update and delete. Each method is the stages in their order."""

from __future__ import annotations

import msgspec

from querybuild.changes import plan_delete, plan_update
from querybuild.errors import ApiError, MethodForbidden, raise_all
from serializers.decode import decode_resource_document
from serializers.objects import MetaDocument
from server.engine import ReadShape
from server.handlers.reading import ReadingHandler
from server.writes import write_and_read, write_only

DELETED = msgspec.json.encode(MetaDocument({"message": "Object successfully deleted"}))


class ResourceHandler(ReadingHandler):
    methods = ("GET", "PATCH", "DELETE")

    def allowed(self) -> tuple[str, ...]:
        return self.methods if "detail" in self.resource.methods else self.methods[1:]

    async def get(self) -> None:
        await self.answer_read(ReadShape("resource", self.resource), self.path_id(self.resource))

    async def patch(self) -> None:
        assert self.route is not None
        resource, engine = self.resource, self.engine
        if "update" not in resource.methods:
            raise MethodForbidden(f"A {resource.type} cannot be updated here.")
        path_id = self.path_id(resource)
        errors: list[ApiError] = []
        self.stage("parse")
        change = decode_resource_document(self.body, errors, needs_id=True, max_depth=engine.settings.max_json_depth)
        self.stage("plan")
        planned = (
            None if change is None else plan_update(change, resource, self.route.id, path_id, engine.catalog, errors)
        )
        read = self.prepare_answer(planned, errors)
        raise_all(errors)
        assert planned is not None
        assert read is not None
        self.stage("execute")
        _, result = await write_and_read(self.database, planned, read, engine)
        self.stage("encode")
        body = self.document(read, result, {})
        self.finish_document(body)

    async def delete(self) -> None:
        if "delete" not in self.resource.methods:
            raise MethodForbidden(f"A {self.resource.type} cannot be deleted here.")
        self.stage("plan")
        self.engine.check_no_parameters(self.request.query)
        planned = plan_delete(self.resource, self.path_id(self.resource))
        self.stage("execute")
        await write_only(self.database, planned, self.engine)
        self.finish_document(DELETED)
