// Signs in at an OpenID provider of other authors, stays signed in, and signs out, with and without JavaScript.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { accessible, launch } from "./browsing.mjs";

const [, , baseUrl, executablePath, issuerUrl, pictures = ""] = process.argv;
const browser = await launch(executablePath);

// The pages of the provider load fonts from elsewhere.
const open = async (options) => {
  const page = await browser.open(options);
  await page.context().route(/googleapis|gstatic/, (route) => route.abort());
  return page;
};

async function signsIn(page) {
  const answer = await page.goto(`${baseUrl}/users?sort=-age&filter[age][ge]=60`);
  assert.equal(answer.status(), 401);
  await accessible(page);
  if (pictures && page.hasScript) await page.screenshot({ path: `${pictures}/sign-in-1024-light.png` });
  await page.getByRole("main").getByRole("link", { name: "Sign in" }).click();
  assert.equal(new URL(page.url()).origin, issuerUrl);
  await page.fill("[name=login]", "ann");
  await page.fill("[name=password]", "secret");
  await page.getByRole("button", { name: "Sign-in" }).click();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${baseUrl}/users?**`);
  assert.equal(page.url(), `${baseUrl}/users?sort=-age&filter[age][ge]=60`);
  assert.match(await page.locator("header").innerText(), /ann\s+Sign out/);
  assert.ok((await page.locator("tbody tr").count()) > 3);
  await accessible(page);
  const [cookie, ...others] = (await page.context().cookies(baseUrl)).filter((one) => one.name.startsWith("__Host-"));
  assert.match(cookie.name, /^__Host-waterspout-[0-9a-f]{8}$/);
  assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite, others], [true, true, "Lax", []]);
  assert.equal(await page.evaluate(() => document.cookie), "");
}

async function writes(page) {
  await page.goto(`${baseUrl}/groups`);
  await page.getByRole("link", { name: "New", exact: true }).click();
  await page.getByLabel("name").fill(`of ann ${page.hasScript}`);
  await page.getByRole("button", { name: "Save" }).click();
  assert.equal(await page.getByRole("heading", { level: 1 }).innerText(), `of ann ${page.hasScript}`);
}

// An access token lasts four seconds. The workers renew a session once, though several pages ask at once.
async function staysSignedIn(page) {
  const context = page.context();
  const tabs = await Promise.all(Array.from({ length: 6 }, () => context.newPage()));
  for (const seconds of [2.5, 5, 2.5]) {
    await sleep(1000 * seconds);
    const answers = await Promise.all(tabs.map((tab, number) => tab.goto(`${baseUrl}/users?page[number]=${number + 1}`)));
    assert.deepEqual(answers.map((one) => one.status()), Array(6).fill(200));
  }
  if (page.hasScript) {
    await sleep(5000);
    await tabs[0].getByText("Values", { exact: true }).click();
    await tabs[0].locator("#facets").getByRole("link").first().waitFor();
  }
  await Promise.all(tabs.map((tab) => tab.close()));
}

// A page of the provider is of the same site and of another origin: the browser sends the cookie, which must not count.
async function isSafeFromOthers(page) {
  const other = await page.context().newPage();
  for (const path of ["/-/pages/delete/groups/1", "/-/pages/sign-out"]) {
    await other.goto(`${issuerUrl}/.well-known/openid-configuration`);
    await other.setContent(`<form method="post" action="${baseUrl}${path}"><button>Send</button></form>`);
    const [answer] = await Promise.all([
      other.waitForResponse(`${baseUrl}${path}`),
      other.getByRole("button").click(),
    ]);
    assert.equal(answer.status(), 403);
  }
  await other.goto(`${issuerUrl}/.well-known/openid-configuration`);
  const read = await other.evaluate(
    (url) => fetch(url, { credentials: "include" }).then((answer) => answer.status, () => "refused"),
    `${baseUrl}/groups/1`,
  );
  assert.equal(read, "refused");
  await other.close();
  assert.equal((await page.goto(`${baseUrl}/groups/1`)).status(), 200);
}

async function signsOut(page) {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(`${issuerUrl}/**`);
  await page.getByRole("button", { name: /sign me out/ }).click();
  await page.waitForURL(`${baseUrl}/`);
  assert.doesNotMatch(await page.locator("header").innerText(), /ann/);
  assert.equal((await page.goto(`${baseUrl}/users`)).status(), 401);
  // The issuer asks again.
  await page.getByRole("main").getByRole("link", { name: "Sign in" }).click();
  await page.locator("[name=login]").waitFor();
}

try {
  for (const javaScriptEnabled of [true, false]) {
    const page = await open({ javaScriptEnabled, viewport: { width: 1024, height: 900 } });
    await signsIn(page);
    await writes(page);
    await staysSignedIn(page);
    if (javaScriptEnabled) await isSafeFromOthers(page);
    await signsOut(page);
    await page.context().close();
  }
  const ours = browser.complaints.filter((one) => one.startsWith(baseUrl));
  assert.deepEqual(ours, []);
} finally {
  await browser.close();
}
