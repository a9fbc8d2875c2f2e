"""/ and what is the server's own under /-/: links to every collection, liveness, readiness."""

from __future__ import annotations

import msgspec

from serializers.objects import LinksDocument, MetaDocument
from server.handlers.base import Handler


class RootHandler(Handler):
    async def get(self) -> None:
        self.engine.check_no_parameters(self.request.query)
        base = self.engine.base_url
        links = {"self": f"{base}/"}
        listed = [resource for resource in self.engine.catalog if "list" in resource.methods]
        links.update({resource.path[1:]: base + resource.path for resource in listed})
        operations_path = self.engine.settings.operations_path
        if operations_path:
            links["operations"] = base + operations_path
        self.finish_document(msgspec.json.encode(LinksDocument(links, {})))


class LiveHandler(Handler):
    """The process answers."""

    async def get(self) -> None:
        self.finish_document(msgspec.json.encode(MetaDocument({"status": "live"})))


class ReadyHandler(Handler):
    """The database answers too; a failure of it is a 503 by way of the root handler."""

    async def get(self) -> None:
        await self.database.read(lambda connection: connection.fetchval("SELECT 1"), is_snapshot=False)
        self.finish_document(msgspec.json.encode(MetaDocument({"status": "ready"})))
