// A Chromium for the pages: what it complains of, which hosts it asks, and what axe finds.
import assert from "node:assert/strict";
import axe from "axe-core";
import { chromium } from "playwright-core";

export async function launch(executablePath) {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const complaints = [];
  const hosts = new Set();

  async function open(options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB", ...options });
    const page = await context.newPage();
    page.hasScript = options.javaScriptEnabled ?? true;
    // A form that is refused is an answer with an error status, which the browser reports too.
    page.on("console", (message) => {
      if (!/status of (4\d\d)/.test(message.text())) complaints.push(`${page.url()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
    page.on("request", (request) => {
      if (!request.url().startsWith("data:")) hosts.add(new URL(request.url()).origin);
    });
    return page;
  }

  return { open, complaints, hosts, close: () => browser.close() };
}

export async function accessible(page) {
  if (!page.hasScript) return; // axe needs one
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"], rules: { "target-size": { enabled: true } } }));
  const faults = found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html}\n${node.failureSummary}`));
  assert.deepEqual(faults, [], page.url());
}
