"use strict";

// The document is beside the page, below any prefix.
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
