"use strict";

// The document is beside the page, below any prefix.
const url = new URL("openapi.json", document.location.href).href;

// The viewer takes seconds to read a document of more paths than these, and again for each operation. It gets the
// operations of one tag then.
const MANY_PATHS = 100;

// The viewer has a dark style, and leaves the choice to the page.
const dark = matchMedia("(prefers-color-scheme: dark)");
const choose = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", choose);
choose();

const tagsOf = (operation) => operation.tags ?? ["default"];
const isOperation = (member) => typeof member === "object" && "responses" in member;

function show(spec) {
  return SwaggerUIBundle({
    spec,
    dom_id: "#page",
    deepLinking: true,
    docExpansion: spec.tags.length === 1 ? "list" : "none",
    filter: spec.tags.length > 1,
    validatorUrl: null,
    // A token is kept only in this tab.
    persistAuthorization: false,
    syntaxHighlight: { activated: false },
  });
}

// The viewer shows parameters of a path without their names. The id comes first, what to include and show last.
function withOwnParameters(whole) {
  const resolved = (one) => (one.$ref ? whole.components.parameters[one.$ref.split("/")[3]] : one);
  const isInPath = (one) => resolved(one).in === "path";
  for (const item of Object.values(whole.paths)) {
    const shared = item.parameters ?? [];
    delete item.parameters;
    for (const operation of Object.values(item).filter(isOperation)) {
      const own = operation.parameters ?? [];
      operation.parameters = [...shared.filter(isInPath), ...own, ...shared.filter((one) => !isInPath(one))];
    }
  }
  return whole;
}

// The operations of a tag, with the components that they refer to.
function partOf(whole, tag) {
  const paths = {};
  for (const [path, item] of Object.entries(whole.paths)) {
    const members = Object.entries(item);
    const kept = members.filter(([, one]) => !isOperation(one) || tagsOf(one).includes(tag));
    if (kept.some(([, one]) => isOperation(one))) paths[path] = Object.fromEntries(kept);
  }
  const components = { securitySchemes: whole.components.securitySchemes };
  const pending = [paths];
  while (pending.length > 0) {
    for (const [name, value] of Object.entries(pending.pop())) {
      if (name === "$ref" && typeof value === "string") {
        const [, , kind, part] = value.split("/");
        components[kind] ??= {};
        if (part in components[kind]) continue;
        // Resources of all types may be included. They would be the whole document again.
        const isAny = part === "JsonApi.Included";
        components[kind][part] = isAny ? { type: "object", description: "A resource." } : whole.components[kind][part];
        pending.push(components[kind][part]);
      } else if (typeof value === "object" && value !== null) pending.push(value);
    }
  }
  return { ...whole, tags: whole.tags.filter((one) => one.name === tag), paths, components };
}

// Shows the tag in the URL, as links to operations have it: #/user/user.list
function showParts(whole) {
  const select = document.querySelector("#tags");
  const operations = Object.values(whole.paths).flatMap((item) => Object.values(item).filter(isOperation));
  const names = [...new Set([...whole.tags.map((one) => one.name), ...operations.flatMap(tagsOf)])];
  select.append(...names.map((name) => new Option(name)));
  const asked = decodeURIComponent(document.location.hash.split("/")[1] ?? "");
  select.value = names.includes(asked) ? asked : names[0];
  document.querySelector("#parts").hidden = false;
  const viewer = show(partOf(whole, select.value));
  select.addEventListener("change", () => {
    history.replaceState(null, "", `#/${encodeURIComponent(select.value)}`);
    viewer.specActions.updateSpec(JSON.stringify(partOf(whole, select.value)));
  });
}

async function start() {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  const whole = withOwnParameters(await response.json());
  document.title = whole.info.title;
  if (Object.keys(whole.paths).length > MANY_PATHS) showParts(whole);
  else show(whole);
}

start().catch((error) => {
  document.querySelector("#page").textContent = `The document cannot be shown. ${error.message}`;
});
