"use strict";

// The document is beside the page, below any prefix.
// The viewer has a dark style, and leaves the choice to the page.
const dark = matchMedia("(prefers-color-scheme: dark)");
const choose = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", choose);
choose();

SwaggerUIBundle({
  url: new URL("openapi.json", document.location.href).href,
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  validatorUrl: null,
  // A token is kept only in this tab.
  persistAuthorization: false,
  syntaxHighlight: { activated: false },
  onComplete() {
    const title = document.querySelector(".info .title");
    if (title !== null) document.title = title.firstChild.textContent;
  },
});
