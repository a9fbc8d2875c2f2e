// The docs page in a browser: it shows the API, breaks no rule of its policy, and sends a request with a token.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [, , baseUrl, executablePath, token = "", screenshot = ""] = process.argv;
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

  async function send(method, path) {
    const row = page.locator(`.opblock-${method}`, { has: page.locator(`[data-path="${path}"]`) }).first();
    await row.locator(".opblock-summary-control").click();
    await row.locator(".try-out__btn").click();
    const [request] = await Promise.all([
      page.waitForRequest((one) => one.method() === method.toUpperCase() && new URL(one.url()).pathname === path),
      row.locator(".execute").click(),
    ]);
    const answer = await request.response();
    await row.locator(".live-responses-table .response-col_status", { hasText: String(answer.status()) }).waitFor();
    return [request, answer];
  }

  const [read, list] = await send("get", "/computers");
  assert.equal(list.status(), 200, await list.text());
  assert.equal(read.headers()["accept"], "application/vnd.api+json");
  assert.equal(read.headers()["authorization"], token ? `Bearer ${token}` : undefined);
  if (screenshot) await page.screenshot({ path: screenshot, fullPage: true });
  const [write, made] = await send("post", "/computers");
  assert.equal(made.status(), 201, await made.text());
  assert.equal(write.headers()["content-type"], "application/vnd.api+json");
  if (screenshot) await page.screenshot({ path: screenshot.replace(".", "-post."), fullPage: true });
  assert.deepEqual(complaints, []);
  assert.deepEqual([...hosts], [baseUrl]);
} finally {
  await browser.close();
}
