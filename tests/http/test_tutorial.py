"""Follows the tutorial literally: its files are written, its commands run in an empty folder, and their output is
compared with the page.

In the page a block of the language `sql` or `python` with a path after it is a file. A block of the language `console`
has commands, each with its output. A block `text output` is the output of the server since it was ready. Starting a
server stops the one before it. Each request is sent with `X-Request-Id: example`. Only the port and the folder differ
from the page. WATERSPOUT_WRITE_DOCS=1 writes the real output into the page instead of comparing."""

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
from tests.ready import address_in, port_of

PAGE = ROOT / "docs" / "tutorial.md"
HOME = "/home/mira"
SECONDS = 60
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<word>\S+))?\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>.*)$")


class Reader:
    """A reader who does what the page says: in a folder, with a server that runs in another terminal."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home
        self.port = 0
        self.server: subprocess.Popen[str] | None = None

    def do(self, found: re.Match[str]) -> str:
        """Write the file of a block, or run its commands. Returns the block with the real output."""
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
        """Return the command and its output."""
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
        """Start the server. Returns its output until it is ready."""
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
            if (address := address_in([line])) is not None:
                self.port = port_of(address)
                return self.as_on_the_page(lines)
        raise AssertionError(f"the server ended: {''.join(lines)}")

    def as_on_the_page(self, lines: list[str]) -> str:
        """Return the output with the port and folder of the page, for a reader who is not root."""
        shown = "".join([line for line in lines if not line.startswith("started as root")])
        return shown.replace(f":{self.port}", ":8080").replace(str(self.home), HOME)

    def ask(self, command: str) -> str:
        request = request_of_curl(command)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as client:
            body = None if request.body is None else request.body.encode()
            client.request(request.method, request.path, body, {"X-Request-Id": "example", **request.headers})
            return laid_out(json.loads(client.getresponse().read()))

    def stop(self) -> None:
        """Stop the server with Ctrl-C."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            self.server.communicate(timeout=SECONDS)
            assert self.server.returncode == 0
            self.server = None


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a block, without their output. A quoted text may have several lines."""
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
    """Yield a reader in an empty folder, which the system user of PostgreSQL may enter."""
    with tempfile.TemporaryDirectory(prefix="waterspout-") as name:
        Path(name).chmod(0o755)
        following = Reader(Path(name))
        yield following
        if following.server is not None:
            following.server.terminate()
            following.server.communicate(timeout=SECONDS)


def test_the_tutorial_can_be_followed(reader: Reader) -> None:
    text = PAGE.read_text(encoding="utf-8")
    followed = BLOCK.sub(reader.do, text)
    reader.stop()
    if WRITES_DOCS:
        PAGE.write_text(followed, encoding="utf-8")
    else:
        assert followed == text, "WATERSPOUT_WRITE_DOCS=1 writes the page again; look at the diff"


def test_every_block_is_followed() -> None:
    """The page has only blocks that the test runs, because other blocks would not be tested."""
    text = PAGE.read_text(encoding="utf-8")
    found = [(block["language"], block["word"]) for block in BLOCK.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^```", text, re.MULTILINE))
    files = [word for language, word in found if language in ("sql", "python")]
    assert files == ["migrations/0001_library.sql", "library.py", "migrations/0002_loans.sql", "library.py"]
    assert {language for language, word in found if word is None} == {"console"}
    assert [word for language, word in found if language == "text"] == ["output"]
