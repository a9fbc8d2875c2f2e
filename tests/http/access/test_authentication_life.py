"""Authentication of a server in its own processes: files at the start and at a reload, the list of processes."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.http.running.test_life import port_of, seeded  # noqa: F401  (a fixture)
from tests.http.running.test_process import DEADLINE_SECONDS, end, folder, serving  # noqa: F401  (a fixture)
from tests.issuer import AUDIENCE, claims, signed
from tests.waiting import wait_until

OLD, NEW = "the first secret, with thirty-two bytes or more", "the second secret, with thirty-two bytes or more"
RESOURCES = """
from msgspec.structs import replace
from server.resources import built_in
from waterspout import ANYONE, SIGNED_IN, Allow, Principal, Unauthenticated

RESOURCES = [replace(one, access=(Allow(SIGNED_IN, "read"),)) for one in built_in()]


async def AUTHENTICATE(request):
    key = request.headers.get("X-Key")
    if key not in (None, "good"):
        raise Unauthenticated("There is no such key.")
    return key and Principal(subject="importer")
"""


def status(port: int, secret: str | None, path: str = "/users", **headers: str) -> int:
    given = {} if secret is None else {"Authorization": f"Bearer {signed(claims(), secret.encode(), 'HS256')}"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as client:
        client.request("GET", path, headers=given | headers)
        return client.getresponse().status


def command_lines(process: subprocess.Popen[str]) -> str:
    found = psutil.Process(process.pid)
    return " ".join(word for one in [found, *found.children(recursive=True)] for word in one.cmdline())


@pytest.mark.parametrize("count", [1, 2])
def test_a_reload_takes_another_secret(folder: Path, seeded: str, count: int) -> None:  # noqa: F811
    secret, resources = folder / "secret", folder / "shop.py"
    secret.write_text(f"{OLD}\n")
    resources.write_text(RESOURCES)
    flags = ("--auth-secret-file", str(secret), "--auth-audience", AUDIENCE, "--resources", str(resources))
    server = ("--port", "0", "--workers", str(count), "--database-url", seeded)
    with serving(*server, *flags) as (process, address):
        port = port_of(address)
        assert [status(port, OLD), status(port, NEW), status(port, None)] == [200, 401, 401]
        assert [status(port, None, **{"X-Key": key}) for key in ("good", "bad")] == [200, 401]
        assert OLD not in command_lines(process)
        assert process.stderr is not None
        for broken, reason in (("short", "it has 5 bytes, and at least 32 are needed"), ("", "is empty")):
            secret.write_text(broken)
            process.send_signal(signal.SIGHUP)
            line = next(line for line in process.stderr if "are refused" in line)
            assert reason in line
            assert status(port, OLD) == 200
        secret.write_text(NEW)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: [status(port, OLD), status(port, NEW)] == [401, 200])
        code, errors = end(process, signal.SIGTERM)
        assert code == 0
        assert OLD not in errors


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--auth-secret-file", "{folder}/none"), "auth_secret_file: {folder}/none can't be read: No such file"),
        (
            ("--auth-jwks", "{folder}/settings.json"),
            "settings.json cannot be used: it is not a JSON Web Key Set",
        ),
        (("--auth-jwks", "{folder}"), "auth_jwks: {folder} can't be read: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_start(
    folder: Path,  # noqa: F811
    seeded: str,  # noqa: F811
    flags: tuple[str, ...],
    reason: str,
) -> None:
    (folder / "settings.json").write_text(json.dumps({"a": 1}))
    given = [flag.replace("{folder}", str(folder)) for flag in flags]
    with (
        pytest.raises(pytest.fail.Exception, match=reason.replace("{folder}", str(folder))),
        serving("--port", "0", "--database-url", seeded, "--auth-audience", "x", *given),
    ):
        pass
