"""The tutorial, followed literally: its files are written, its commands run in an empty folder, and what they answer is
compared with what the page shows.

In the page a block of the language `sql` or `python` with a path behind it is a file; a block of the language `console`
is commands, each with what it prints; a block `text output` is what the server has printed since it was ready. A server
that is started stops the one before it. Each request is sent with `X-Request-Id: example`. Only the port and the folder
are others than the page's. WATERSPOUT_WRITE_DOCS=1 writes what comes into the page instead of comparing.
"""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.http.test_docs import ROOT, WRITES_DOCS, laid_out, request_of_curl

PAGE = ROOT / "docs" / "tutorial.md"
HOME = "/home/mira"
SECONDS = 60
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<word>\S+))?\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>.*)$")


class Reader:
    """Somebody who does what the page says: in a folder, with a server that runs in another terminal."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home
        self.port = 0
        self.server: subprocess.Popen[str] | None = None

    def do(self, found: re.Match[str]) -> str:
        """A block as it is with what came: written to its file, or run."""
        language, word, text = found["language"], found["word"], found["text"]
        if language in ("sql", "python"):
            path = self.folder / word
            path.write_text(text + "\n", encoding="utf-8")
        elif language == "console":
            text = "\n".join([self.run(command) for command in commands(text)])
        elif (language, word) == ("text", "output"):
            assert self.server is not None
            assert self.server.stdout is not None
            text = "\n".join([self.server.stdout.readline().rstrip("\n") for _ in text.splitlines()])
        head = language if word is None else f"{language} {word}"
        return f"```{head}\n{text}\n```"

    def run(self, command: str) -> str:
        """The command and what it prints."""
        program, *words = shlex.split(command.replace("\\\n", " "))
        if program == "waterspout":
            shown = self.serve(words)
        elif program == "curl":
            shown = self.ask(command)
        elif program == "cd":
            self.folder, shown = self.folder / words[0], ""
        else:
            done = subprocess.run([program, *words], cwd=self.folder, capture_output=True, text=True, check=True)
            shown = done.stdout
        return f"$ {command}\n{shown}".rstrip("\n")

    def serve(self, words: list[str]) -> str:
        """What is printed until the server is ready."""
        self.stop()
        program = str(Path(sys.executable).with_name("waterspout"))
        self.server = subprocess.Popen(
            [program, *words, "--port", "0", "--log-level", "warning"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        lines: list[str] = []
        for line in self.server.stdout:
            lines.append(line)
            if line.startswith("waterspout is ready on "):
                self.port = int(line.rpartition(":")[2])
                return self.as_on_the_page(lines)
        raise AssertionError(f"the server ended: {''.join(lines)}")

    def as_on_the_page(self, lines: list[str]) -> str:
        """With its port and folder, for a reader who is not root."""
        shown = "".join([line for line in lines if not line.startswith("started as root")])
        return shown.replace(f":{self.port}", ":8080").replace(str(self.home), HOME)

    def ask(self, command: str) -> str:
        request = request_of_curl(command)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as client:
            body = None if request.body is None else request.body.encode()
            client.request(request.method, request.path, body, {"X-Request-Id": "example", **request.headers})
            return laid_out(json.loads(client.getresponse().read()))

    def stop(self) -> None:
        """With Ctrl-C."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            self.server.communicate(timeout=SECONDS)
            assert self.server.returncode == 0
            self.server = None


def commands(text: str) -> Iterator[str]:
    """Those of a block, without what stands below each. A quoted text may go over several lines."""
    lines = text.split("\n")
    while lines:
        found = COMMAND.match(lines.pop(0))
        if found is None:
            continue
        command = found["command"]
        while command.endswith("\\") or command.count("'") % 2:
            command += "\n" + lines.pop(0)
        yield command


@pytest.fixture
def reader() -> Iterator[Reader]:
    """In an empty folder, which the system user that PostgreSQL runs as may enter."""
    with tempfile.TemporaryDirectory(prefix="waterspout-") as name:
        Path(name).chmod(0o755)
        following = Reader(Path(name))
        yield following
        if following.server is not None:
            following.server.terminate()
            following.server.communicate(timeout=SECONDS)


def test_it_can_be_followed(reader: Reader) -> None:
    text = PAGE.read_text(encoding="utf-8")
    followed = BLOCK.sub(reader.do, text)
    reader.stop()
    if WRITES_DOCS:
        PAGE.write_text(followed, encoding="utf-8")
    else:
        assert followed == text, "WATERSPOUT_WRITE_DOCS=1 writes the page anew; look at the diff"


def test_every_block_is_followed() -> None:
    """There is no other kind of block that would be passed over."""
    text = PAGE.read_text(encoding="utf-8")
    found = [(block["language"], block["word"]) for block in BLOCK.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^```", text, re.MULTILINE))
    files = [word for language, word in found if language in ("sql", "python")]
    assert files == ["migrations/0001_library.sql", "library.py", "migrations/0002_loans.sql", "library.py"]
    assert {language for language, word in found if word is None} == {"console"}
    assert [word for language, word in found if language == "text"] == ["output"]
