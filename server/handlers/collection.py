"""/{collection}: list and create. Each method is the stages in their order."""

from __future__ import annotations

from querybuild.changes import plan_create
from querybuild.errors import ApiError, MethodForbidden, raise_all
from serializers.decode import decode_resource_document
from serializers.links import quote_segment
from server.engine import ReadShape
from server.handlers.reading import ReadingHandler
from server.writes import write_and_read


class CollectionHandler(ReadingHandler):
    methods = ("GET", "POST")

    def allowed(self) -> tuple[str, ...]:
        return self.methods if "list" in self.resource.methods else ("POST",)

    async def get(self) -> None:
        await self.answer_read(ReadShape("collection", self.resource))

    async def post(self) -> None:
        resource, engine = self.resource, self.engine
        if "create" not in resource.methods:
            raise MethodForbidden(f"A {resource.type} cannot be created here.")
        errors: list[ApiError] = []
        self.stage("parse")
        change = decode_resource_document(self.body, errors, needs_id=False, max_depth=engine.settings.max_json_depth)
        self.stage("plan")
        planned = None if change is None else plan_create(change, resource, engine.catalog, errors)
        read = self.prepare_answer(planned, errors)
        raise_all(errors)
        assert planned is not None
        assert read is not None
        self.stage("execute")
        row_id, result = await write_and_read(self.database, planned, read, engine)
        self.stage("encode")
        location = f"{engine.base_url}{resource.path}/{quote_segment(str(row_id))}"
        is_readable = "detail" in resource.methods
        body = read.compiled.encoder.encode(result.rows, {"self": location} if is_readable else {})
        if is_readable:
            self.set_header("Location", location)
        self.finish_document(body, 201)
