// The client in JavaScript of docs/retrying.md, through a proxy that breaks every third connection.
import assert from "node:assert/strict";
import { createServer, connect } from "node:net";
import { pathToFileURL } from "node:url";

const [, , module, url] = process.argv;
const { write } = await import(pathToFileURL(module));
const target = new URL(url);

let count = 0;
const proxy = createServer((client) => {
  const server = connect(Number(target.port), target.hostname);
  for (const [from, to] of [[client, server], [server, client]]) {
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroy());
  }
  client.pipe(server);
  count += 1;
  if (count % 3 === 0) {
    // The request arrives, and its answer does not.
    server.once("data", () => client.destroy());
  } else {
    server.pipe(client);
  }
});
await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
const through = `http://127.0.0.1:${proxy.address().port}`;

const names = Array.from({ length: 20 }, (_, number) => `retried-${number}`);
const made = [];
for (const name of names) {
  const [status, document] = await write("POST", `${through}/groups`, {
    data: { type: "group", attributes: { name } },
  });
  assert.equal(status, 201);
  made.push(document.data.id);
}
assert.equal(new Set(made).size, names.length);
const listed = await (await fetch(`${url}/groups?page[size]=100`)).json();
const found = listed.data.filter((group) => group.attributes.name.startsWith("retried-"));
assert.deepEqual(found.map((group) => group.id).sort(), made.sort());

// An update with the version that was read, and its answer again.
const read = await fetch(`${url}/groups/${made[0]}`);
const body = JSON.stringify({ data: { type: "group", id: made[0], attributes: { name: "changed" } } });
const sent = {
  method: "PATCH",
  headers: {
    "Content-Type": "application/vnd.api+json",
    "If-Match": read.headers.get("ETag"),
    "Idempotency-Key": crypto.randomUUID(),
  },
  body,
};
const first = await fetch(`${url}/groups/${made[0]}`, sent);
const again = await fetch(`${url}/groups/${made[0]}`, sent);
assert.deepEqual([first.status, first.headers.get("Idempotent-Replayed")], [200, "false"]);
assert.deepEqual([again.status, again.headers.get("Idempotent-Replayed")], [200, "true"]);
assert.equal(await again.text(), await first.text());
proxy.close();
process.exit(0);
