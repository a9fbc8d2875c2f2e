"""A folder like a machine that has only the C library, and a way to start a program in it.

In: a folder. Out: in it everything that a program needs if it depends only on the C library. As a command, this module
runs another command inside such a folder; it has to be started by root.

python bare.py ROOT UID [FOLDER...] -- COMMAND... makes these folders visible inside under their own names.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.deploy.confine import BIND, NEW_MOUNTS, PRIVATE, RECURSIVE, checked, libc, mount

LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libresolv.so.2"),
    "libgcc_s.so.1",
)
FOLDERS = ("lib/*-linux-gnu", "lib64")
PASSWD = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"


def make(root: Path, *programs: Path) -> Path:
    """Create the folder, with these programs in /bin. The path of the loader is written in every program's file."""
    for folder in ("bin", "etc", "proc", "dev", "tmp", "home/ann", "root", "var/lib", "var/cache", "lib64", "lib"):
        (root / folder).mkdir(parents=True)
        (root / folder).chmod(0o755)
    (root / "tmp").chmod(0o1777)
    os.chown(root / "home" / "ann", 1000, 1000)
    (root / "etc" / "passwd").write_text(PASSWD)
    for loader in Path("/lib64").glob("ld-linux*"):
        shutil.copy(loader, root / "lib64")
    for name in LIBRARIES:
        # The loader searches the system folders that it was built for.
        found = next(path for folder in FOLDERS for path in Path("/").glob(f"{folder}/{name}"))
        (root / found.relative_to("/")).parent.mkdir(exist_ok=True)
        shutil.copy(found, root / found.relative_to("/"))
    for program in programs:
        shutil.copy(program, root / "bin")
    return root


def main(root: str, uid: str, *rest: str) -> None:
    end = rest.index("--")
    checked(libc.unshare(NEW_MOUNTS))
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    mount("proc", f"{root}/proc", "proc")
    mount("/dev", f"{root}/dev", flags=BIND | RECURSIVE)
    for folder in rest[:end]:
        Path(root + folder).mkdir(parents=True, exist_ok=True)
        mount(folder, root + folder, flags=BIND)
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
    os.execv(rest[end + 1], rest[end + 1 :])


if __name__ == "__main__":
    main(*sys.argv[1:])
