"""Writes a request in the languages that people copy it from: a shell, Python and JavaScript. No credentials are in it.

It must not know: SQL, resources.
"""

from __future__ import annotations

import json
import shlex

MEDIA_TYPE = "application/vnd.api+json"


def snippets(url: str) -> dict[str, str]:
    """Return a GET of a URL, by the name of the language. Each text is quoted as its language quotes texts.

    >>> snippets("http://x/users")["curl"]
    "curl -g -H 'Accept: application/vnd.api+json' 'http://x/users'"
    """
    return {"curl": curl(url), "Python": _python(url), "JavaScript": _javascript(url)}


def curl(url: str) -> str:
    """Return a command of a POSIX shell."""
    return f"curl -g -H {_in_shell(f'Accept: {MEDIA_TYPE}')} {_in_shell(url)}"


def _in_shell(text: str) -> str:
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"


def _python(url: str) -> str:
    return "\n".join(
        (
            "import json, urllib.request",
            f"request = urllib.request.Request({url!r}, headers={{'Accept': {MEDIA_TYPE!r}}})",
            "print(json.load(urllib.request.urlopen(request))['data'])",
        )
    )


def _javascript(url: str) -> str:
    # A page may contain it: `<` would end a script.
    text = json.dumps(url).replace("<", "\\u003c")
    return "\n".join(
        (
            f"const answer = await fetch({text}, {{headers: {{Accept: {json.dumps(MEDIA_TYPE)}}}}});",
            "console.log((await answer.json()).data);",
        )
    )
