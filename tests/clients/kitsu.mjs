// kitsu: flattens resources, pluralizes types into paths unless told not to, and sends a body with DELETE.

import assert from "node:assert/strict";
import Kitsu from "kitsu";

import { step } from "./steps.mjs";

const api = new Kitsu({ baseURL: process.argv[2], pluralize: false, camelCaseTypes: false, resourceCase: "none" });

// It takes types for paths; its own hook makes /user/1/relationships/computer the path that it is here.
const PATHS = { user: "users", computer: "computers" };
api.interceptors.request.use((config) => ({
  ...config,
  url: config.url.split("/").map((segment) => PATHS[segment] ?? segment).join("/"),
}));

const ids = (collection) => collection.map((resource) => resource.id);
const computersOf = async (id) => ids((await api.get(`user/${id}/computers`)).data);

await step("list", async () => {
  const { data, meta, links, status } = await api.get("user", {
    params: { page: { size: 5, number: 2 }, sort: "-last_name,id", fields: { user: "last_name" } },
  });
  assert.equal(status, 200);
  assert.equal(data.length, 5);
  assert.deepEqual(Object.keys(data[0]).sort(), ["id", "last_name", "links", "type"]);
  const names = data.map((user) => user.last_name);
  assert.deepEqual(names, names.toSorted().toReversed());
  assert.equal(meta.count, 5);
  assert.equal(meta.totalPages, Math.ceil(meta.total / 5));
  assert.deepEqual(Object.keys(links).sort(), ["first", "last", "next", "prev", "self"]);
});

await step("filter", async () => {
  const blocked = (await api.get("user", { params: { filter: { status: "block" } } })).data;
  assert.ok(blocked.length > 0);
  assert.ok(blocked.every((user) => user.status === "block"));
  const filter = JSON.stringify([
    { name: "computers.name", op: "endswith", val: "laptop" },
    { name: "age", op: "lt", val: 40 },
  ]);
  const young = (await api.get("user", { params: { filter } })).data;
  assert.ok(young.length > 0);
  assert.ok(young.every((user) => user.age < 40));
});

await step("include", async () => {
  const { data } = await api.get("user/1", { params: { include: "computers,group" } });
  assert.ok(data.computers.data.length > 0);
  assert.ok(data.computers.data.every((computer) => computer.name));
  assert.ok(data.group.data.name);
  assert.equal(data.computers.links.self, "/users/1/relationships/computers");
});

const created = await step("create", async () => {
  const computers = { data: [{ type: "computer", id: "1" }, { type: "computer", id: "2" }] };
  const { data, status, headers } = await api.post(
    "user",
    { first_name: "Ida", last_name: "Noddack", words: ["rhenium"], computers },
    { params: { include: "computers" } },
  );
  assert.equal(status, 201);
  assert.equal(headers.location, `/users/${data.id}`);
  assert.equal(data.display_name, "Ida Noddack");
  assert.deepEqual(ids(data.computers.data), ["1", "2"]);
  return data;
});

await step("update", async () => {
  // The linked resources go back whole. (What was not included cannot: it would be sent as an attribute.)
  const { data } = await api.patch("user", { id: created.id, age: 82, computers: created.computers });
  assert.equal(data.age, 82);
  assert.deepEqual(await computersOf(created.id), ["1", "2"]);
});

await step("relationship write", async () => {
  const url = `user/${created.id}/relationships/computer`;
  const added = await api.request({ method: "POST", url, type: "computer", body: [{ id: "3" }, { id: "2" }] });
  assert.deepEqual([added.status, added.meta.message], [200, "Relationship successfully created"]);
  assert.deepEqual(await computersOf(created.id), ["1", "2", "3"]);

  const removed = await api.delete(url, ["1", "2"]);
  assert.deepEqual([removed.status, removed.meta.message], [200, "Relationship successfully updated"]);
  assert.deepEqual(await computersOf(created.id), ["3"]);

  await api.request({ method: "PATCH", url, type: "computer", body: [{ id: "4" }] });
  assert.deepEqual(ids((await api.get(url)).data), ["4"]);
  await api.request({ method: "PATCH", url, type: "computer", body: [] });
  assert.deepEqual(ids((await api.get(url)).data), []);

  const owner = "computer/4/relationships/owner";
  await api.request({ method: "PATCH", url: owner, type: "user", body: { id: created.id } });
  assert.deepEqual(await computersOf(created.id), ["4"]);
  await api.request({ method: "PATCH", url: owner, body: null });
  assert.deepEqual(await computersOf(created.id), []);
});

await step("delete", async () => {
  const { status, meta } = await api.delete("user", created.id);
  assert.deepEqual([status, meta.message], [200, "Object successfully deleted"]);
  await assert.rejects(api.get(`user/${created.id}`), (error) => error.response.status === 404);
});

await step("error", async () => {
  await assert.rejects(api.post("user", { first_name: "", age: -1 }), (error) => {
    assert.equal(error.response.status, 422);
    const pointers = error.errors.map((each) => each.source.pointer);
    assert.deepEqual(pointers.sort(), ["age", "first_name", "last_name"].map((name) => `/data/attributes/${name}`));
    assert.ok(error.errors.every((each) => each.title === "Invalid Attribute"));
    return true;
  });
});
