// The docs page in a browser: it shows the API, breaks no rule of its policy, and sends requests with a token.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [, , baseUrl, executablePath, token = "", screenshot = ""] = process.argv;
const FILTER = '{"name":"name","op":"ilike","val":"%a%"}';
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 1000 } });
  const complaints = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  const hosts = new Set();
  page.on("request", (request) => {
    if (!request.url().startsWith("data:")) hosts.add(new URL(request.url()).origin);
  });
  await page.goto(`${baseUrl}/-/docs`);
  await page.waitForSelector(".info .title");
  if (token) {
    await page.click(".auth-wrapper .authorize");
    await page.fill(".auth-container input", token);
    await page.click(".auth-btn-wrapper .authorize");
    await page.click(".auth-btn-wrapper .btn-done");
  }
  await page.click(".opblock-tag[data-tag=computer]");

  async function send(method, path, sent = path, filter = "") {
    const row = page.locator(`.opblock-${method}`, { has: page.locator(`[data-path="${path}"]`) }).first();
    await row.locator(".opblock-summary-control").click();
    await row.locator(".try-out__btn").click();
    if (filter) await row.locator("tr[data-param-name=filter] input").fill(filter);
    const [request] = await Promise.all([
      page.waitForRequest((one) => one.method() === method.toUpperCase() && new URL(one.url()).pathname === sent),
      row.locator(".execute").click(),
    ]);
    const answer = await request.response();
    await row.locator(".live-responses-table .response-col_status", { hasText: String(answer.status()) }).waitFor();
    return [request, answer];
  }

  const [read, list] = await send("get", "/computers", "/computers", FILTER);
  assert.equal(list.status(), 200, await list.text());
  assert.equal(read.headers()["accept"], "application/vnd.api+json");
  assert.equal(read.headers()["authorization"], token ? `Bearer ${token}` : undefined);
  assert.equal(new URL(read.url()).searchParams.get("filter"), FILTER);
  if (screenshot) await page.screenshot({ path: screenshot, fullPage: true });
  const [write, made] = await send("post", "/computers");
  assert.equal(made.status(), 201, await made.text());
  assert.equal(write.headers()["content-type"], "application/vnd.api+json");
  if (screenshot) await page.screenshot({ path: screenshot.replace(".", "-post."), fullPage: true });
  const [linked, answered] = await send(
    "patch", "/computers/{id}/relationships/owner", "/computers/1/relationships/owner",
  );
  assert.deepEqual(linked.postDataJSON(), { data: { type: "user", id: "1" } });
  assert.ok([200, 404].includes(answered.status()), await answered.text());
  if (answered.status() === 404) complaints.pop(); // The browser complains about each.
  await page.click(".opblock-tag[data-tag=operations]");
  const [several, done] = await send("post", "/operations");
  assert.equal(done.status(), 200, await done.text());
  assert.match(several.headers()["content-type"], /ext="https:\/\/jsonapi.org\/ext\/atomic"/);

  // Of a large document it shows a part.
  const whole = await (await page.request.get(`${baseUrl}/-/openapi.json`)).json();
  const others = Object.entries(whole.paths).flatMap(([path, item]) =>
    ["more", "still"].map((name) => [`/${name}${path}`, item]),
  );
  Object.assign(whole.paths, Object.fromEntries(others));
  await page.route("**/openapi.json", (route) => route.fulfill({ json: whole }));
  await page.goto("about:blank");
  await page.goto(`${baseUrl}/-/docs#/computer`);
  await page.waitForSelector("[data-path='/more/computers']");
  assert.equal(await page.locator("[data-path='/users']").count(), 0);
  await page.selectOption("#tags", "user");
  await page.waitForSelector("[data-path='/users']");
  assert.equal(await page.locator("[data-path='/computers']").count(), 0);
  assert.match(page.url(), /#\/user$/);
  assert.deepEqual(complaints, []);
  assert.deepEqual([...hosts], [baseUrl]);
} finally {
  await browser.close();
}
