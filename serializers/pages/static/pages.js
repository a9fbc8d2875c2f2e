// Makes pages quicker to use. Everything here also works without it.

// Adds the reader's zone to each time in UTC.
for (const time of document.querySelectorAll("time[data-utc]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) {
    const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }).format(at);
    time.after(Object.assign(document.createElement("span"), { className: "muted", textContent: ` (${local})` }));
  }
}

// Offers the operators and choices of the chosen field only.
for (const form of document.querySelectorAll("form[data-builder]")) {
  const { field, operator, value } = form.elements;
  const list = Object.assign(document.createElement("datalist"), { id: "choices" });
  form.append(list);
  value.setAttribute("list", list.id);
  const all = [...operator.options];
  const narrow = () => {
    const { operators, choices, type } = field.selectedOptions[0].dataset;
    const known = operators.split(" ");
    operator.replaceChildren(...all.filter((one) => known.includes(one.value)));
    list.replaceChildren(...choices.split("\n").filter(Boolean).map((one) => new Option(one, one)));
    value.inputMode = type === "number" ? "decimal" : "text";
    value.placeholder = type === "date" ? "2026-01-31" : "";
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
