// The pages for people in a browser: every journey with and without JavaScript, by keyboard, in all widths and schemes.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { accessible, launch } from "./browsing.mjs";

const [, , baseUrl, executablePath, pictures = ""] = process.argv;
const browser = await launch(executablePath);
const { open, complaints, hosts } = browser;

const heads = (page) => page.locator("thead th").allInnerTexts();
const column = async (page, name) => {
  const index = (await heads(page)).findIndex((text) => text.trim() === name);
  return page.locator(`tbody tr > :nth-child(${index + 1})`).allInnerTexts();
};

// Finds a user by a filter built with clicks, follows to a computer, sorts, includes, goes to the next page.
async function reads(page, hasScript) {
  await page.goto(`${baseUrl}/`);
  await page.getByRole("link", { name: "Users", exact: true }).first().click();
  await accessible(page);
  assert.equal(await page.locator("tbody tr").count(), 30);
  await page.getByText("Filter", { exact: true }).click();
  await page.selectOption("[name=field]", "age");
  await page.selectOption("[name=operator]", "ge");
  await page.fill("[name=value]", "60");
  if (hasScript) assert.ok(!(await page.locator("[name=operator] option").allInnerTexts()).includes("begins with"));
  await page.getByRole("button", { name: "Add the filter" }).click();
  assert.match(page.url(), /filter%5Bage%5D%5Bge%5D=60/);
  assert.equal(await page.locator(".chips li").first().innerText(), "age ≥ 60 ×");
  const ages = (await column(page, "age")).map(Number);
  assert.ok(ages.length > 3 && ages.every((age) => age >= 60), ages.join());
  await page.locator("thead").getByRole("link", { name: "age" }).click();
  assert.deepEqual((await column(page, "age")).map(Number), ages.toSorted((one, other) => one - other));
  await page.getByText("Fields", { exact: true }).click();
  await page.getByRole("checkbox", { name: "words" }).uncheck();
  await page.getByRole("checkbox", { name: "computers" }).check();
  await page.getByRole("button", { name: "Show these" }).click();
  assert.ok(!(await heads(page)).includes("words"));
  await accessible(page);
  // The number leads to all computers, and the next link to the first one.
  await page.locator("tbody td.r a").first().click();
  await page.getByRole("heading", { level: 1 }).waitFor();
  assert.match(page.url(), /\/users\/\d+\/computers$/);
  await accessible(page);
  await page.goBack();
  await page.locator("tbody td.r a").nth(1).click();
  await page.getByRole("heading", { level: 1 }).waitFor();
  assert.match(page.url(), /\/computers\/\d+$/);
  await accessible(page);
  await page.locator("dl.fields a").first().click();
  assert.match(page.url(), /\/users\/\d+$/);
  await page.goto(`${baseUrl}/users`);
  await page.getByRole("link", { name: "Next ›" }).click();
  assert.equal(await page.getByRole("link", { name: "‹ Previous" }).count(), 1);
}

// Joins a filter with the last one.
async function alternatives(page) {
  await page.goto(`${baseUrl}/users?filter[age]=84&sort=-age`);
  await page.getByText("Filter", { exact: true }).click();
  await accessible(page);
  await page.selectOption("[name=join]", { label: "or, with “age = 84”" });
  await page.selectOption("[name=field]", "age");
  await page.selectOption("[name=operator]", "eq");
  await page.fill("[name=value]", "69");
  await page.getByRole("button", { name: "Add the filter" }).click();
  assert.equal(await page.locator(".chips li").first().innerText(), "age = 84 or age = 69 ×");
  assert.deepEqual(await column(page, "age"), ["84", "69"]);
}

async function facets(page) {
  await page.goto(`${baseUrl}/users?filter[age][ge]=30`);
  await page.getByText("Values", { exact: true }).click();
  const link = page.locator("a[data-load]");
  if (!page.hasScript) await link.click();
  await page.locator("#facets").getByRole("link", { name: "archive" }).click();
  assert.match(page.url(), /status%5D=archive/);
  assert.equal(await page.locator(".chips li").count(), 3);
}

// Takes a group away and chooses it again. The label beside its id is always that of the id.
async function choosesAgain(page) {
  const id = page.getByLabel("id of the group");
  const label = page.locator(".pick .muted").first();
  const own = await id.inputValue();
  assert.equal(await label.innerText(), "Laboratory");
  await id.fill("");
  assert.equal(await label.innerText(), "");
  await page.getByLabel("or search by name").fill("lab");
  await page.getByRole("button", { name: "Laboratory" }).click();
  assert.deepEqual([await id.inputValue(), await label.innerText()], [own, "Laboratory"]);
}

// Creates a user with an error and mends it, edits it at once with a second browser, links and deletes it.
async function writes(page, other, hasScript) {
  await page.goto(`${baseUrl}/users`);
  await page.getByRole("link", { name: "New", exact: true }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").waitFor();
  await accessible(page);
  assert.match(await page.getByRole("alert").innerText(), /first_name.*required/s);
  if (hasScript) assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "alert");
  await page.getByLabel("first_name").fill("Ada");
  await page.getByLabel("last_name").fill("Two\nlines".replace("\n", " "));
  await page.getByLabel("or search by name").fill("lab");
  if (hasScript) {
    await page.getByRole("button", { name: "Laboratory" }).click();
    assert.equal(await page.locator(".pick .muted").first().innerText(), "Laboratory");
  } else {
    await page.getByRole("button", { name: "Search" }).click();
    assert.equal(await page.getByLabel("first_name").inputValue(), "Ada");
    await page.getByLabel("Laboratory").check();
  }
  await page.getByRole("button", { name: "Save" }).click();
  assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), "Ada Two lines");
  assert.match(await page.locator("dl.fields").innerText(), /Laboratory/);
  const url = page.url();

  await page.getByRole("link", { name: "Edit" }).click();
  await accessible(page);
  if (hasScript) await choosesAgain(page);
  await other.goto(page.url());
  await other.getByLabel("first_name").fill("Grace");
  await other.getByRole("button", { name: "Save" }).click();
  assert.equal(other.url(), url);
  await page.getByLabel("age").fill("36");
  await page.getByRole("button", { name: "Save" }).click();
  assert.match(await page.getByRole("alert").innerText(), /It has changed meanwhile/);
  assert.match(await page.locator(".now").innerText(), /Grace/);
  await accessible(page);
  await page.getByRole("button", { name: "Save" }).click();
  assert.equal(page.url(), url);
  assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), "Grace Two lines");

  await page.goto(`${baseUrl}/groups/1`);
  await page.getByRole("link", { name: "Change the links" }).click();
  await page.getByLabel("Search").fill("Grace");
  if (hasScript) {
    const match = page.getByRole("button", { name: "Grace Two lines" });
    await match.waitFor();
    await accessible(page);
    await match.click();
  } else {
    await page.getByRole("button", { name: "Search" }).click();
    await accessible(page);
    await page.getByRole("button", { name: "Add a link to Grace Two lines" }).click();
  }
  await page.goto(url);
  assert.match(await page.locator("dl.fields").innerText(), /Boats and moorings/);

  await page.getByRole("link", { name: "Delete" }).click();
  await accessible(page);
  await page.getByRole("button", { name: "Delete" }).click();
  assert.equal(page.url(), `${baseUrl}/users`);
  assert.equal((await page.goto(url)).status(), 404);
  await accessible(page);
}

// Imports lines with a fault, mends it, and imports a file.
async function imports(page, hasScript) {
  await page.goto(`${baseUrl}/groups`);
  await page.getByRole("link", { name: "Import" }).click();
  await accessible(page);
  const name = `imported ${hasScript}`;
  await page.getByLabel("Lines of CSV").fill(`name\n${name}\nBoats and moorings`);
  await page.getByRole("button", { name: "Import" }).click();
  assert.match(await page.getByRole("alert").innerText(), /Line 3, column “name”/);
  await accessible(page);
  await page.getByLabel("Lines of CSV").fill(`name\n${name}\n`);
  await page.getByRole("button", { name: "Try" }).click();
  assert.match(await page.getByRole("status").filter({ hasText: "All lines" }).innerText(), /can be imported/);
  await page.getByRole("button", { name: "Import" }).click();
  assert.equal(page.url(), `${baseUrl}/groups`);
  assert.ok((await column(page, "name")).includes(name));
  await page.getByRole("link", { name: "Import" }).click();
  const small = (text) => ({ name: "groups.csv", mimeType: "text/csv", buffer: Buffer.from(text) });
  await page.getByLabel("File of CSV").setInputFiles(small(`name\nof a file ${hasScript}\n`));
  await page.getByRole("button", { name: "Try" }).click();
  await page.getByRole("status").filter({ hasText: "All lines" }).waitFor();
  await page.getByRole("button", { name: "Import" }).click();
  assert.ok((await column(page, "name")).includes(`of a file ${hasScript}`));
  if (!hasScript) return;
  await page.getByRole("link", { name: "Import" }).click();
  const lines = Array.from({ length: 60000 }, (_, index) => `group of a large file ${index}`);
  const buffer = Buffer.from(["name", ...lines, "Laboratory", ""].join("\n"));
  await page.getByLabel("File of CSV").setInputFiles({ name: "groups.csv", mimeType: "text/csv", buffer });
  await page.getByText("The first lines of groups.csv are shown.").waitFor();
  await page.getByRole("button", { name: "Try" }).click();
  await page.getByText("Line 60002, column “name”").waitFor();
}

async function exports(page) {
  await page.goto(`${baseUrl}/users?filter[age][ge]=60`);
  await page.getByText("Export", { exact: true }).click();
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "CSV", exact: true }).click(),
  ]);
  assert.equal(saved.suggestedFilename(), "users.csv");
  const lines = readFileSync(await saved.path(), "utf8").trim().split("\r\n");
  assert.match(lines[0], /^id,first_name,/);
  assert.ok(lines.length > 3);
}

// By keyboard alone: skip to the content, sort, add a filter.
async function keyboard(page) {
  await page.goto(`${baseUrl}/users`);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  const press = async (text) => {
    for (let count = 0; count < 80; count++) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.innerText)) === text) return;
    }
    assert.fail(`no way to ${text}`);
  };
  await press("Filter");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type("age");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.type("84");
  await page.keyboard.press("Enter");
  await page.waitForURL(/filter%5Bage%5D=84/);
  assert.deepEqual(await column(page, "age"), ["84"]);
  await press("id");
  await page.keyboard.press("Enter");
  await page.waitForURL(/sort=id/);
}

// What is drawn over the API's docs, too: no page is wider than the window, in any width and scheme.
async function looks() {
  const paths = { start: "/", list: "/users?include=computers&sort=-age", related: "/users?include=computers&fields[user]=display_name,age,status,group,computers&sort=-age", resource: "/users/12", form: "/-/pages/edit/users/12", error: "/users?sort=nope", photos: "/photos", sql: "/-/pages/explain?url=/users%3Finclude%3Dcomputers" };
  if (pictures) mkdirSync(pictures, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 1024, 2560]) {
      const page = await open({ viewport: { width, height: 900 }, colorScheme });
      for (const [name, path] of Object.entries(paths)) {
        await page.goto(`${baseUrl}${path}`);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${path} is ${over} pixels too wide at ${width}`);
        await accessible(page);
        if (pictures) await page.screenshot({ path: `${pictures}/${name}-${width}-${colorScheme}.png` });
      }
      await page.context().close();
    }
  }
}

try {
  for (const javaScriptEnabled of [true, false]) {
    const options = { javaScriptEnabled };
    const page = await open(options);
    await reads(page, javaScriptEnabled);
    await alternatives(page);
    await facets(page);
    await writes(page, await open(options), javaScriptEnabled);
    await exports(page);
    await imports(page, javaScriptEnabled);
    await page.context().close();
  }
  await keyboard(await open());
  await looks();
  assert.deepEqual(complaints, []);
  assert.deepEqual([...hosts], [baseUrl]);
} finally {
  await browser.close();
}
