// Makes pages quicker to use. Everything here also works without it.

// Adds the reader's zone to each time in UTC.
for (const time of document.querySelectorAll("time[data-utc]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) {
    const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }).format(at);
    time.after(Object.assign(document.createElement("span"), { className: "muted zone", textContent: ` (${local})` }));
  }
}

// Offers the operators and choices of the chosen field only.
for (const form of document.querySelectorAll("form[data-builder]")) {
  const { field, operator, value } = form.elements;
  const list = Object.assign(document.createElement("datalist"), { id: "choices" });
  form.append(list);
  value.setAttribute("list", list.id);
  const all = new Map([...operator.options].map((one) => [one.value, one]));
  const narrow = () => {
    const { operators, choices, type } = field.selectedOptions[0].dataset;
    const before = operator.value;
    const known = operators.split(" ");
    operator.replaceChildren(...known.map((name) => all.get(name)));
    operator.value = known.includes(before) ? before : known[0];
    list.replaceChildren(...choices.split("\n").filter(Boolean).map((one) => new Option(one, one)));
    value.inputMode = type === "number" ? "decimal" : "text";
    value.placeholder = { date: "2026-01-31", moment: "2026-01-31 10:00 UTC" }[type] ?? "";
  };
  field.addEventListener("change", narrow);
  narrow();
}

// Filters a list while a text is typed.
for (const input of document.querySelectorAll("input[data-filter]")) {
  const items = [...document.querySelectorAll(`${input.dataset.filter} > li`)];
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    for (const item of items) item.hidden = !item.dataset.text.includes(text);
  });
}

// Copies a text.
for (const text of document.querySelectorAll("[data-copy]")) {
  const button = Object.assign(document.createElement("button"), { className: "copy", textContent: "Copy", type: "button" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  text.before(button);
}

// Shows the JSON of a page in the page.
for (const link of document.querySelectorAll("a[data-json]")) {
  link.addEventListener("click", async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const answer = await fetch(link.href, { headers: { Accept: "application/vnd.api+json" } });
    const shown = Object.assign(document.createElement("pre"), { tabIndex: 0 });
    shown.textContent = JSON.stringify(await answer.json(), null, 2);
    link.replaceWith(shown);
  });
}

// Typing a text takes null back.
for (const box of document.querySelectorAll("[data-null]")) {
  document.getElementById(box.dataset.null).addEventListener("input", () => { box.checked = false; });
}

// Shows what is wrong first.
document.querySelector("[role=alert][tabindex]")?.focus();

// Suggests related rows while their label is typed.
for (const input of document.querySelectorAll("input[data-search]")) {
  const { search, by, type, into } = input.dataset;
  const id = document.getElementById(into);
  const title = id.parentElement.querySelector("bdi") ?? document.createElement("bdi");
  id.addEventListener("input", () => { title.textContent = ""; });
  const list = Object.assign(document.createElement("ul"), { className: "matches" });
  const live = Object.assign(document.createElement("p"), { className: "muted" });
  live.setAttribute("role", "status");
  input.parentElement.append(live, list);
  let asked = 0;
  input.addEventListener("input", async () => {
    const text = input.value.trim();
    const number = ++asked;
    await new Promise((done) => { setTimeout(done, 200); });
    if (number !== asked) return;
    if (!text) return list.replaceChildren();
    const pattern = `%${text.replace(/[\\%_]/g, "\\$&")}%`;
    const query = new URLSearchParams([
      [`filter[${by}][ilike]`, pattern], ["sort", by], ["page[size]", "10"], ["page[total]", "none"],
      [`fields[${type}]`, by], ["answerAs", "json"],
    ]);
    const answer = await fetch(`${search}?${query}`);
    if (number !== asked || !answer.ok) return;
    const { data } = await answer.json();
    live.textContent = data.length ? "" : "Nothing matches.";
    list.replaceChildren(...data.map((one) => {
      const label = one.attributes[by] || one.id;
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: label });
      // Several rows may have one label.
      if (label !== one.id) {
        button.append(" ", Object.assign(document.createElement("span"), { className: "muted", textContent: one.id }));
      }
      button.addEventListener("click", () => {
        id.value = one.id;
        title.textContent = label;
        input.value = "";
        list.replaceChildren();
        live.textContent = `${label} is chosen.`;
        if (id.dataset.isSentAtOnce) id.form.requestSubmit();
      });
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  });
}

// Imports a file: a small one is shown first, and a large one is sent as it is.
for (const form of document.querySelectorAll("form[data-import]")) {
  const file = form.querySelector("[type=file]");
  const text = form.elements.text;
  const shown = Object.assign(document.createElement("p"), { className: "note", hidden: true });
  shown.setAttribute("role", "status");
  form.before(shown);
  // What is in the text is sent: it may be edited.
  file.removeAttribute("name");
  let large = null;
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    large = chosen && chosen.size > 2 ** 20 ? chosen : null;
    text.value = chosen ? await chosen.slice(0, 2 ** 20).text() : "";
    text.readOnly = large !== null;
    shown.hidden = large === null;
    if (large) shown.textContent = `The first lines of ${large.name} are shown. All of it is sent.`;
  });
  form.addEventListener("submit", async (event) => {
    if (!large) return;
    event.preventDefault();
    const isTried = event.submitter?.name === "check";
    shown.textContent = isTried ? "The lines are tried…" : "The lines are imported…";
    const headers = { "Content-Type": "text/csv", Accept: "application/vnd.api+json" };
    if (isTried) headers.Prefer = "tx=rollback";
    const key = form.elements.key?.value;
    const url = form.dataset.import + (key ? `?onConflict=${encodeURIComponent(key)}` : "");
    const answer = await fetch(url, { method: "POST", headers, body: large });
    const { meta, errors } = await answer.json();
    if (answer.ok && !isTried) location.assign(form.dataset.import);
    shown.textContent = answer.ok
      ? `All ${meta.count} lines can be imported.`
      : errors.map((one) => one.detail).join("\n");
  });
}

// Shows the facets of a list beside it, when they are asked for.
for (const part of document.querySelectorAll("details[data-facets]")) {
  part.addEventListener("toggle", async () => {
    const link = part.querySelector("a[data-load]");
    if (!part.open || !link) return;
    const page = new DOMParser().parseFromString(await (await fetch(link.href)).text(), "text/html");
    link.replaceWith(document.adoptNode(page.querySelector("#facets")));
  });
}
