// Reads, writes and includes with a client that openapi-typescript has made from the document of the server.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./build/api.js";

const [, , baseUrl = ""] = process.argv;
const mediaType = "application/vnd.api+json";
const api = createClient<paths>({
  baseUrl,
  headers: { "Content-Type": mediaType, Accept: mediaType },
  querySerializer: { array: { style: "form", explode: false } },
});

// A filter with a page, a sort and an include.
const filter: components["schemas"]["user.filter"] = [{ name: "age", op: "ge", val: 60 }];
const { data: list, response } = await api.GET("/users", {
  params: {
    query: { filter: JSON.stringify(filter), sort: ["-age", "id"], include: ["group"], page: { size: 2 } },
  },
});
assert.equal(response.status, 200);
assert.ok(list);
assert.equal(list.data.length, 2);
const ages = list.data.map((user) => user.attributes?.age ?? 0);
assert.ok(ages.every((age: number) => age >= 60));
for (const one of list.included ?? []) {
  // The type tells which attributes there are.
  if (one.type === "group") assert.equal(typeof one.attributes?.name, "string");
}

// A create, an update, an error and a delete.
const { data: made } = await api.POST("/computers", {
  body: {
    data: {
      type: "computer",
      attributes: { name: "auk" },
      relationships: { owner: { data: { type: "user", id: "1" } } },
    },
  },
});
assert.ok(made);
const id = made.data.id;
const path = { params: { path: { id } } };
const { data: changed } = await api.PATCH("/computers/{id}", {
  ...path,
  body: { data: { type: "computer", id, attributes: { serial: "S1" } } },
});
assert.equal(changed?.data.attributes?.serial, "S1");

// An update with the version that was read, sent twice with the same key. The second one changes nothing.
const { response: read } = await api.GET("/computers/{id}", path);
const header = { "If-Match": read.headers.get("ETag") ?? "", "Idempotency-Key": crypto.randomUUID() };
const keyed = {
  params: { path: { id }, header },
  body: { data: { type: "computer" as const, id, attributes: { serial: "S2" } } },
};
const { response: first } = await api.PATCH("/computers/{id}", keyed);
const { data: repeated, response: again } = await api.PATCH("/computers/{id}", keyed);
assert.deepEqual([first, again].map((one) => one.headers.get("Idempotent-Replayed")), ["false", "true"]);
assert.equal(repeated?.data.attributes?.serial, "S2");
const { error: late } = await api.PATCH("/computers/{id}", {
  ...keyed,
  params: { path: { id }, header: { "If-Match": header["If-Match"] } },
});
assert.equal(late?.errors[0]?.code, "precondition_failed");

const { error } = await api.GET("/computers/{id}", { params: { path: { id: "0" } } });
assert.equal(error?.errors[0]?.code, "resource_not_found");
const { response: deleted } = await api.DELETE("/computers/{id}", path);
assert.equal(deleted.status, 200);

// What the declarations do not allow does not compile.
// @ts-expect-error: a number has no operator like
const wrong: components["schemas"]["user.filter"] = [{ name: "age", op: "like", val: "6" }];
// @ts-expect-error: first_name is required
const missing: components["schemas"]["user.create"] = { data: { type: "user", attributes: { last_name: "x" } } };
// @ts-expect-error: no group has this type
const other: components["schemas"]["group.target"] = { type: "user", id: "1" };
void [wrong, missing, other];
