// @warp-drive/json-api, the cache of WarpDrive, in its development build: every document it is given is checked against
// the format and against the schemas below, and what it finds it prints. Run with --conditions=unpkg-dev.

import assert from "node:assert/strict";
import { recordIdentifierFor, useRecommendedStore } from "@warp-drive/core";
import { setupSignals } from "@warp-drive/core/configure";
import { checkout, withDefaults } from "@warp-drive/core/reactive";
import { SkipCache } from "@warp-drive/core/types/request";
import { JSONAPICache } from "@warp-drive/json-api";
import { setBuildURLConfig } from "@warp-drive/utilities";
import {
  createRecord,
  deleteRecord,
  findRecord,
  query,
  serializePatch,
  serializeResources,
  updateRecord,
} from "@warp-drive/utilities/json-api";

import { step } from "./steps.mjs";

// Nothing here is redrawn when a value changes.
setupSignals(() => ({
  createSignal: () => ({}),
  consumeSignal() {},
  notifySignal() {},
  createMemo: (object, key, compute) => compute,
  willSyncFlushWatchers: () => false,
}));

const host = process.argv[2];
setBuildURLConfig({ host, namespace: "" });

const fields = (...names) => names.map((name) => ({ kind: "field", name }));
// async: what is not included is a link, which is fetched when it is wanted. In links mode what is included is a field.
const related = (kind, name, type, inverse, linksMode = false) => ({
  kind,
  name,
  type,
  options: { async: !linksMode, inverse, linksMode },
});
const schemas = [
  {
    type: "user",
    fields: [
      ...fields("first_name", "last_name", "display_name", "age", "email", "status", "birth_date", "gender", "words"),
      ...fields("date_create"),
      related("hasMany", "computers", "computer", "owner"),
      related("hasMany", "posts", "post", "user"),
      related("belongsTo", "bio", "user_bio", "user"),
      related("belongsTo", "group", "group", "users"),
    ],
  },
  { type: "computer", fields: [...fields("name", "serial"), related("belongsTo", "owner", "user", "computers")] },
  { type: "group", fields: [...fields("name"), related("hasMany", "users", "user", "group", true)] },
  { type: "post", fields: [...fields("title", "body"), related("belongsTo", "user", "user", "posts")] },
  {
    type: "user_bio",
    fields: [
      ...fields("birth_city", "favourite_movies", "keys_to_ids_list"),
      related("belongsTo", "user", "user", "bio"),
    ],
  },
].map(withDefaults);

// It checks what it puts into the cache. The answers to writes are merged there instead: they are checked on their way.
const Linter = useRecommendedStore({ cache: JSONAPICache, schemas });
const lint = (document) => new Linter().cache.put(structuredClone(document));
const checkWrites = {
  async request({ request }, next) {
    const { content } = await next(request);
    const { op, method, url } = request;
    if (op === "createRecord" || op === "updateRecord") lint({ request: { op, method, url }, response: null, content });
    return content;
  },
};
const Store = useRecommendedStore({ cache: JSONAPICache, schemas, handlers: [checkWrites] });
const store = new Store();

// What the linter finds it prints. So does the store, which in this build warns whether or not its second argument,
// what ought to be so, is so.
const printed = [];
console.log = (text) => printed.push(text);
console.warn = (text, holds) => holds === true || printed.push(text);
const checked = (name, run) =>
  step(name, async () => {
    const result = await run();
    assert.deepEqual(printed.splice(0), []);
    return result;
  });

const linked = (record, name) => {
  const { data } = store.cache.getRelationship(recordIdentifierFor(record), name);
  return Array.isArray(data) ? data.map((key) => store.peekRecord(key)) : store.peekRecord(data);
};
const ids = (records) => records.map((record) => record.id);
const MEDIA_TYPE = "application/vnd.api+json";
/** Its builders of requests leave the body to the application. */
const withBody = (request, document) => {
  const headers = new Headers({ Accept: MEDIA_TYPE, "Content-Type": MEDIA_TYPE });
  return { ...request, headers, body: JSON.stringify(document) };
};
const computersOf = async (id) => {
  const request = query("computer", {}, { resourcePath: `users/${id}/computers`, reload: true });
  const { content } = await store.request(request);
  return ids(content.data);
};

await step("the linter is at work", () => {
  const wrong = { data: { type: "user", id: "1", attributes: { colour: "red" }, colour: "red" }, included: null };
  lint({ request: { url: host, method: "GET" }, response: null, content: wrong });
  assert.match(printed.splice(0).join(), /^3 errors and 0 warnings found/);
});

await checked("list", async () => {
  const { content } = await store.request(query("user", { "page[size]": 5, "page[number]": 2, sort: "-last_name,id" }));
  assert.equal(content.data.length, 5);
  const names = content.data.map((user) => user.last_name);
  assert.deepEqual(names, names.toSorted().toReversed());
  assert.equal(content.meta.count, 5);
  assert.ok(content.links.next);
});

await checked("filter", async () => {
  const { content } = await store.request(query("user", { "filter[status]": "block" }));
  assert.ok(content.data.length > 0);
  assert.ok(content.data.every((user) => user.status === "block"));
});

await checked("include", async () => {
  const group = (await store.request(findRecord("group", "1", { include: ["users"] }))).content.data;
  assert.ok(ids(group.users).includes("1"));
  assert.ok(group.users.every((user) => user.last_name));

  const { content } = await store.request(findRecord("user", "1", { include: ["computers", "group", "posts", "bio"] }));
  const user = content.data;
  assert.ok(linked(user, "computers").length > 0);
  assert.ok(linked(user, "computers").every((computer) => computer.name));
  assert.equal(linked(user, "group"), group);
  assert.ok(linked(user, "bio").birth_city);
});

const user = await checked("create", async () => {
  const record = store.createRecord("user", { first_name: "Ida", last_name: "Noddack", words: ["rhenium"] });
  const { data } = serializeResources(store.cache, recordIdentifierFor(record));
  assert.equal(data.id, null);
  // The one thing that it sends and the service does not take.
  delete data.lid;
  data.relationships.computers = { data: [{ type: "computer", id: "1" }, { type: "computer", id: "2" }] };
  const { content, response } = await store.request(withBody(createRecord(record), { data }));
  assert.equal(response.status, 201);
  assert.match(content.data.id, /^[0-9]+$/);
  assert.equal(content.data.display_name, "Ida Noddack");
  return content.data;
});

await checked("update", async () => {
  const editable = await checkout(user);
  editable.age = 82;
  editable.last_name = "Tacke";
  const key = recordIdentifierFor(user);
  const request = withBody(updateRecord(editable, { patch: true }), serializePatch(store.cache, key));
  const { content } = await store.request(request);
  assert.deepEqual([content.data.age, content.data.display_name], [82, "Ida Tacke"]);
  assert.equal(store.cache.hasChangedAttrs(key), false);
  assert.deepEqual(await computersOf(user.id), ["1", "2"]);

  // All that the cache has goes back, links and what nobody may write among it.
  const whole = serializeResources(store.cache, key);
  assert.ok(whole.data.relationships.group.links);
  whole.data.attributes.age = 83;
  await store.request(withBody(updateRecord(user, { patch: true }), whole));
  assert.equal(user.age, 83);
});

await checked("relationship write", async () => {
  // The links of a relationship are where it is read and written; what is only linkage is nothing for the cache.
  const { links } = store.cache.peek(recordIdentifierFor(user)).relationships.computers;
  assert.equal(links.self, `/users/${user.id}/relationships/computers`);
  const write = (method, path, data) =>
    store.request(withBody({ url: host + path, method, cacheOptions: { [SkipCache]: true } }, { data }));
  const computers = (...all) => all.map((id) => ({ type: "computer", id }));

  const added = await write("POST", links.self, computers("3", "2"));
  assert.equal(added.content.meta.message, "Relationship successfully created");
  assert.deepEqual(await computersOf(user.id), ["1", "2", "3"]);
  const removed = await write("DELETE", links.self, computers("1", "2"));
  assert.equal(removed.content.meta.message, "Relationship successfully updated");
  assert.deepEqual(await computersOf(user.id), ["3"]);
  await write("PATCH", links.self, computers("4", "5"));
  assert.deepEqual(await computersOf(user.id), ["4", "5"]);
  await write("PATCH", links.self, []);
  assert.deepEqual(await computersOf(user.id), []);

  await write("PATCH", "/computers/6/relationships/owner", { type: "user", id: user.id });
  assert.deepEqual(await computersOf(user.id), ["6"]);
  await write("PATCH", "/computers/6/relationships/owner", null);
  assert.deepEqual(await computersOf(user.id), []);
});

await checked("delete", async () => {
  const { id } = user;
  store.deleteRecord(user);
  const { response } = await store.request(deleteRecord(user));
  assert.equal(response.status, 200);
  assert.ok(store.cache.isDeletionCommitted(recordIdentifierFor(user)));
  await assert.rejects(store.request(findRecord("user", id, { reload: true })), (error) => error.status === 404);
});

await checked("error", async () => {
  const record = store.createRecord("user", { first_name: "", age: -1 });
  const { attributes } = serializeResources(store.cache, recordIdentifierFor(record)).data;
  const request = withBody(createRecord(record), { data: { type: "user", attributes } });
  await assert.rejects(store.request(request), (error) => {
    assert.equal(error.status, 422);
    const pointers = error.content.errors.map((each) => each.source.pointer);
    assert.deepEqual(pointers.sort(), ["age", "first_name", "last_name"].map((name) => `/data/attributes/${name}`));
    return true;
  });
  // It has read the pointers: the record knows what is wrong with it.
  const wrong = store.cache.getErrors(recordIdentifierFor(record));
  assert.deepEqual(wrong.length, 3);
});
