// devour-client: models are declared, relationships are written through its builder, errors arrive keyed by field.

import assert from "node:assert/strict";
import Devour from "devour-client";

import { step } from "./steps.mjs";

const api = new Devour({ apiUrl: process.argv[2], logger: false });

const own = { hasOne: (type) => ({ jsonApi: "hasOne", type }), hasMany: (type) => ({ jsonApi: "hasMany", type }) };
api.define(
  "user",
  {
    first_name: "",
    last_name: "",
    display_name: "",
    age: null,
    email: null,
    status: "",
    birth_date: null,
    gender: null,
    words: [],
    date_create: "",
    computers: own.hasMany("computer"),
    posts: own.hasMany("post"),
    bio: own.hasOne("user_bio"),
    group: own.hasOne("group"),
  },
  { type: "user", collectionPath: "users" },
);
api.define("computer", { name: "", serial: "", owner: own.hasOne("user") }, { type: "computer" });
api.define("group", { name: "", users: own.hasMany("user") }, { type: "group" });

const ids = (collection) => collection.map((resource) => resource.id);
const computersOf = async (id) => ids((await api.one("user", id).all("computer").get()).data);

await step("list", async () => {
  const { data, meta, links } = await api.findAll("user", {
    page: { limit: 5, offset: 5 },
    sort: "-last_name,id",
    fields: { user: "last_name" },
  });
  assert.equal(data.length, 5);
  const names = data.map((user) => user.last_name);
  assert.deepEqual(names, names.toSorted().toReversed());
  assert.equal(meta.count, 5);
  const next = await api.request(api.apiUrl + links.next);
  assert.equal(next.data.length, 5);
  assert.ok(next.data[0].last_name <= names.at(-1));
});

await step("filter", async () => {
  const blocked = (await api.findAll("user", { filter: { status: "block" } })).data;
  assert.ok(blocked.length > 0);
  assert.ok(blocked.every((user) => user.status === "block"));
  const middle = (await api.findAll("user", { filter: { age: { ge: 30, lt: 40 } } })).data;
  assert.ok(middle.length > 0);
  assert.ok(middle.every((user) => user.age >= 30 && user.age < 40));
});

await step("include", async () => {
  const { data } = await api.find("user", 1, { include: "computers,group" });
  assert.ok(data.computers.length > 0);
  assert.ok(data.computers.every((computer) => computer.name));
  assert.ok(data.group.name);
});

const created = await step("create", async () => {
  const { data } = await api.create(
    "user",
    { first_name: "Ida", last_name: "Noddack", words: ["rhenium"], computers: [{ id: "1" }, { id: "2" }] },
    { include: "computers" },
  );
  assert.equal(data.display_name, "Ida Noddack");
  assert.deepEqual(ids(data.computers), ["1", "2"]);
  return data;
});

await step("update", async () => {
  const { data } = await api.update("user", { id: created.id, age: 82, group: { id: "2" } });
  assert.equal(data.age, 82);
  assert.equal(data.group.id, "2");
  assert.deepEqual(await computersOf(created.id), ["1", "2"]);

  // All that it read goes back: links, meta and what nobody may write among it.
  const read = (await api.find("user", created.id, { include: "computers,posts,bio,group" })).data;
  const written = (await api.update("user", { ...read, last_name: "Tacke" }, { include: "computers,group" })).data;
  assert.equal(written.display_name, "Ida Tacke");
  assert.deepEqual(ids(written.computers), ["1", "2"]);
  assert.equal(written.group.id, "2");
});

await step("relationship write", async () => {
  const computers = () => api.one("user", created.id).relationships("computers");
  const added = await computers().post([{ id: "3" }, { id: "2" }]);
  assert.equal(added.meta.message, "Relationship successfully created");
  assert.deepEqual(await computersOf(created.id), ["1", "2", "3"]);

  // A whole resource stands for its identifier.
  const whole = (await api.find("computer", 4)).data;
  await computers().post([{ id: whole.id, name: whole.name, serial: whole.serial }]);
  assert.deepEqual(await computersOf(created.id), ["1", "2", "3", "4"]);

  const removed = await computers().destroy([{ type: "computer", id: "1" }, { type: "computer", id: "2" }]);
  assert.equal(removed.meta.message, "Relationship successfully updated");
  assert.deepEqual(await computersOf(created.id), ["3", "4"]);

  await computers().patch([{ id: "5" }]);
  assert.deepEqual(ids((await computers().get()).data), ["5"]);
  await computers().patch([]);
  assert.deepEqual(await computersOf(created.id), []);

  const group = () => api.one("user", created.id).relationships("group");
  await group().patch({ id: "1" });
  assert.equal((await group().get()).data.id, "1");
  await group().patch(null);
  assert.equal((await group().get()).data, null);
});

await step("delete", async () => {
  const { meta } = await api.destroy("user", created.id);
  assert.equal(meta.message, "Object successfully deleted");
  await assert.rejects(
    api.find("user", created.id),
    (errors) => errors[0].title === "Resource Not Found",
  );
});

await step("error", async () => {
  await assert.rejects(api.create("user", { first_name: "", age: -1 }), (errors) => {
    assert.deepEqual(Object.keys(errors).sort(), ["age", "first_name", "last_name"]);
    assert.ok(Object.values(errors).every((each) => each.title === "Invalid Attribute" && each.detail));
    return true;
  });
});
