"""/{collection}: list and create. Each method is the stages in their order."""

from __future__ import annotations

from querybuild.changes import plan_create
from querybuild.errors import ApiError, MethodForbidden, raise_all
from serializers.decode import decode_resource_document
from serializers.links import page_count, page_links, quote_segment
from serializers.objects import PageMeta
from server.engine import PreparedRead
from server.execute import ReadResult, run_read
from server.handlers.base import Handler
from server.handlers.writing import write_and_read


class CollectionHandler(Handler):
    methods = ("GET", "POST")

    def allowed(self) -> tuple[str, ...]:
        return self.methods if "list" in self.resource.methods else ("POST",)

    async def get(self) -> None:
        with self.stage("plan"):
            read = self.engine.read_collection(self.resource, self.request.query)
        with self.stage("execute"):
            result = await self.database.read(
                lambda connection: run_read(connection, read, None, self.engine),
                is_snapshot=not read.plan.is_single_statement,
            )
        with self.stage("encode"):
            body = self._document(read, result)
        self.finish_document(body)

    def _document(self, read: PreparedRead, result: ReadResult) -> bytes:
        page, count = read.query.page, len(result.rows[0])
        total = result.total
        links = page_links(
            self.engine.base_url + self.resource.path,
            read.pairs,
            page,
            count=count,
            total=None if result.is_estimated else total,
            has_next=result.has_more,
        )
        pages = None if total is None else page_count(total, page.size)
        meta = PageMeta(count, total, pages, result.is_estimated)
        return read.compiled.encoder.encode(result.rows, links, meta)

    async def post(self) -> None:
        resource, engine = self.resource, self.engine
        if "create" not in resource.methods:
            raise MethodForbidden(f"A {resource.type} cannot be created here.")
        errors: list[ApiError] = []
        with self.stage("parse"):
            change = decode_resource_document(
                self.body, errors, needs_id=False, max_depth=engine.settings.max_json_depth
            )
        with self.stage("plan"):
            planned = None if change is None else plan_create(change, resource, engine.catalog, errors)
            raise_all(errors)
            assert planned is not None
            read = engine.read_resource(resource, self.request.query, planned.written)
        with self.stage("execute"):
            row_id, result = await write_and_read(self.database, planned, read, engine)
        with self.stage("encode"):
            location = f"{engine.base_url}{resource.path}/{quote_segment(str(row_id))}"
            body = read.compiled.encoder.encode(result.rows, {"self": location})
        if "detail" in resource.methods:
            self.set_header("Location", location)
        self.finish_document(body, 201)
