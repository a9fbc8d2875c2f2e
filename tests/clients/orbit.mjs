// @orbit/jsonapi: a source of records with ids of their own; what it sends follows from operations on records.

import assert from "node:assert/strict";
import { JSONAPISerializers, JSONAPISource } from "@orbit/jsonapi";
import { RecordKeyMap, RecordSchema } from "@orbit/records";

import { step } from "./steps.mjs";

const texts = (...names) => Object.fromEntries(names.map((name) => [name, { type: "string" }]));
// The server chooses its ids: in a record they are a key.
const keys = { serverId: {} };
const schema = new RecordSchema({
  models: {
    user: {
      keys,
      attributes: {
        ...texts("first_name", "last_name", "display_name", "email", "status", "gender"),
        age: { type: "number" },
        words: { type: "array" },
        birth_date: { type: "date" },
        date_create: { type: "date" },
      },
      relationships: {
        computers: { kind: "hasMany", type: "computer", inverse: "owner" },
        posts: { kind: "hasMany", type: "post", inverse: "user" },
        bio: { kind: "hasOne", type: "user_bio", inverse: "user" },
        group: { kind: "hasOne", type: "group", inverse: "users" },
      },
    },
    computer: {
      keys,
      attributes: texts("name", "serial"),
      relationships: { owner: { kind: "hasOne", type: "user", inverse: "computers" } },
    },
    group: {
      keys,
      attributes: texts("name"),
      relationships: { users: { kind: "hasMany", type: "user", inverse: "group" } },
    },
    post: { keys, attributes: texts("title", "body"), relationships: { user: { kind: "hasOne", type: "user" } } },
    user_bio: {
      keys,
      attributes: texts("birth_city", "favourite_movies", "keys_to_ids_list"),
      relationships: { user: { kind: "hasOne", type: "user" } },
    },
  },
});
const keyMap = new RecordKeyMap();
const source = new JSONAPISource({ schema, keyMap, host: process.argv[2], name: "server", autoActivate: true });

const serverId = (record) => keyMap.idToKey(record.type, "serverId", record.id);
const serverIds = (records) => records.map(serverId);
/** A record by its id on the server. */
const known = (type, value) => source.transformBuilder.$normalizeRecordIdentity({ type, key: "serverId", value });
/** Its queue stops at a request that failed, until told to leave that one out. */
async function refuses(request, expected) {
  await assert.rejects(request, expected);
  await source.requestQueue.skip();
}
const computersOf = async (user) => serverIds(await source.query((q) => q.findRelatedRecords(user, "computers")));

await step("list", async () => {
  const response = await source.query(
    (q) => q.findRecords("user").sort("-last_name", "first_name").page({ offset: 5, limit: 5 }),
    { fields: { user: ["last_name"] }, fullResponse: true },
  );
  assert.equal(response.data.length, 5);
  assert.deepEqual(Object.keys(response.data[0].attributes), ["last_name"]);
  const names = response.data.map((user) => user.attributes.last_name);
  assert.deepEqual(names, names.toSorted().toReversed());
  assert.equal(response.details[0].document.meta.count, 5);
});

await step("filter", async () => {
  const blocked = await source.query((q) => q.findRecords("user").filter({ attribute: "status", value: "block" }));
  assert.ok(blocked.length > 0);
  assert.ok(blocked.every((user) => user.attributes.status === "block"));
  // In a filter it sends a record's id, never its key.
  const first = { type: "group", id: "1" };
  const both = await source.query((q) =>
    q.findRecords("user").filter({ relation: "group", record: first }, { attribute: "status", value: "active" }),
  );
  assert.ok(both.length > 0);
  const members = await source.query((q) =>
    q.findRelatedRecords(known("group", "1"), "users").page({ offset: 0, limit: 1000 }),
  );
  assert.ok(both.every((user) => serverIds(members).includes(serverId(user))));
});

await step("include", async () => {
  const { data, details } = await source.query((q) => q.findRecord(known("user", "1")), {
    include: ["computers", "group"],
    fullResponse: true,
  });
  const included = details[0].document.included.map((resource) => `${resource.type} ${resource.id}`);
  const linked = [...data.relationships.computers.data, data.relationships.group.data];
  assert.ok(linked.length > 1);
  assert.deepEqual(included.sort(), linked.map((record) => `${record.type} ${serverId(record)}`).sort());
});

const user = { type: "user", id: schema.generateId("user") };

await step("create", async () => {
  // It writes a date without leading zeros, which no date has here: so one that needs none.
  const birth_date = new Date(1896, 10, 25);
  const created = await source.update((t) =>
    t.addRecord({
      ...user,
      attributes: { first_name: "Ida", last_name: "Noddack", words: ["rhenium"], birth_date },
      relationships: { computers: { data: [known("computer", "1"), known("computer", "2")] } },
    }),
  );
  assert.match(serverId(user), /^[0-9]+$/);
  assert.equal(created.attributes.display_name, "Ida Noddack");
  assert.deepEqual(created.attributes.birth_date, birth_date);
  assert.deepEqual(await computersOf(user), ["1", "2"]);
});

await step("update", async () => {
  await source.update((t) => t.replaceAttribute(user, "age", 82));
  const read = await source.query((q) => q.findRecord(user), { include: ["computers", "posts", "bio", "group"] });
  assert.equal(read.attributes.age, 82);
  // All that it read goes back, what nobody may write among it.
  const written = await source.update((t) =>
    t.updateRecord({ ...read, attributes: { ...read.attributes, last_name: "Tacke" } }),
  );
  assert.equal(written.attributes.display_name, "Ida Tacke");
  assert.deepEqual(await computersOf(user), ["1", "2"]);
});

await step("relationship write", async () => {
  const computer = (id) => known("computer", id);
  const added = await source.update(
    (t) => [
      t.addToRelatedRecords(user, "computers", computer("3")),
      t.addToRelatedRecords(user, "computers", computer("2")),
    ],
    { fullResponse: true },
  );
  assert.deepEqual(
    added.details.map(({ response, document }) => [response.status, document.meta.message]),
    [[200, "Relationship successfully created"]],
  );
  assert.deepEqual(await computersOf(user), ["1", "2", "3"]);

  const removed = await source.update((t) => t.removeFromRelatedRecords(user, "computers", computer("1")), {
    fullResponse: true,
  });
  assert.equal(removed.details[0].document.meta.message, "Relationship successfully updated");
  assert.deepEqual(await computersOf(user), ["2", "3"]);

  await source.update((t) => t.replaceRelatedRecords(user, "computers", [computer("4")]));
  assert.deepEqual(await computersOf(user), ["4"]);
  await source.update((t) => t.replaceRelatedRecord(computer("5"), "owner", user));
  assert.deepEqual(await computersOf(user), ["4", "5"]);
  await source.update((t) => t.replaceRelatedRecord(computer("5"), "owner", null));
  await source.update((t) => t.replaceRelatedRecords(user, "computers", []));
  assert.deepEqual(await computersOf(user), []);
});

await step("delete", async () => {
  const { details } = await source.update((t) => t.removeRecord(user), { fullResponse: true });
  assert.equal(details[0].document.meta.message, "Object successfully deleted");
  await refuses(source.query((q) => q.findRecord(user), { raiseNotFoundExceptions: true }), /not found/);
});

await step("error", async () => {
  const refused = (t) => t.addRecord({ type: "user", attributes: { first_name: "", age: -1 } });
  await refuses(source.update(refused), (error) => {
    assert.equal(error.response.status, 422);
    const pointers = error.data.errors.map((each) => each.source.pointer);
    assert.deepEqual(pointers.sort(), ["age", "first_name", "last_name"].map((name) => `/data/attributes/${name}`));
    return true;
  });
});

await step("operations", async () => {
  // It writes operations and reads their results, and leaves the sending to the application.
  const serializer = (name) => source.requestProcessor.serializerFor(name);
  const t = source.transformBuilder;
  const group = known("group", "1");
  const terms = [
    t.addRecord({ type: "computer", attributes: { name: "kestrel-laptop" } }),
    t.updateRecord({ ...known("user", "5"), attributes: { age: 41 } }),
    t.replaceRelatedRecords(known("user", "5"), "computers", [known("computer", "7")]),
    t.replaceRelatedRecord(known("user", "5"), "group", group),
    t.removeRecord(known("computer", "8")),
  ];
  const operations = terms.map((term) =>
    serializer(JSONAPISerializers.ResourceAtomicOperation).serialize(term.toOperation()),
  );
  const extension = 'application/vnd.api+json;ext="https://jsonapi.org/ext/atomic"';
  const { document } = await source.requestProcessor.fetch(`${process.argv[2]}/operations`, {
    method: "POST",
    headers: { "Content-Type": extension, Accept: extension },
    json: { "atomic:operations": operations },
  });
  const results = document["atomic:results"];
  assert.equal(results.length, terms.length);
  const records = results
    .slice(0, 2)
    .map(({ data }) => serializer(JSONAPISerializers.Resource).deserialize(data));
  assert.deepEqual([records[0].attributes.name, records[1].attributes.age], ["kestrel-laptop", 41]);
  assert.deepEqual(await computersOf(known("user", "5")), ["7"]);
  assert.equal((await source.query((q) => q.findRelatedRecord(known("user", "5"), "group"))).id, group.id);
  assert.equal(await source.query((q) => q.findRecord(known("computer", "8"))), undefined);
});
