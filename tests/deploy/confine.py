"""Runs a program under the restrictions of a systemd unit, as far as they can be applied without systemd.

In: the unit file, a user, a command. Out: that command in this process, which it becomes; it has to begin as root. The
system calls are those of the unit's own SystemCallFilter=, by systemd's own lists.

    python confine.py --uid 65534 [--open FOLDER]... [--credential NAME=VALUE]... UNIT COMMAND...

The folders of --open are visible, and read-only, where the unit would hide them. Not applied: PrivateUsers, and of
ProtectClock, ProtectHostname and ProtectKernelLogs what goes beyond the lost capabilities and system calls.
"""

import argparse
import ctypes
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Unit = dict[str, list[str]]

NEW_MOUNTS, NEW_IPC, ANY_NAMESPACE = 0x00020000, 0x08000000, 0x7E020080
BIND, RECURSIVE, PRIVATE = 1 << 12, 1 << 14, 1 << 18
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8
MOUNT_SETATTR, HERE, WHOLE_TREE = 442, -100, 0x8000
DROP_CAPABILITY, NO_NEW_PRIVILEGES, LAST_CAPABILITY = 24, 38, 63

ALLOW, ERROR = 0x7FFF0000, 0x00050000
NOT_PERMITTED, NO_SUCH_CALL = 1, 38
EQUAL, MASKED_EQUAL = 4, 7
WRITE, EXECUTE, EXECUTE_SHARED = 2, 4, 0o100000
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
HIDDEN = ("/root", "/home", "/run", "/var/lib", "/var/cache", "/dev")
DIRECTORIES = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "CacheDirectory": "/var/cache"}
TEMPORARY = ("/tmp", "/var/tmp")
CREDENTIALS = "/run/credentials"

libc = ctypes.CDLL(None, use_errno=True)


class Comparison(ctypes.Structure):
    """One comparison of a system call's argument, for libseccomp (struct scmp_arg_cmp)."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_uint),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class Attributes(ctypes.Structure):
    """The struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("to_set", ctypes.c_uint64),
        ("to_clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("unit", type=Path)
    parser.add_argument("--uid", type=int, required=True)
    parser.add_argument("--open", type=Path, action="append", default=[])
    parser.add_argument("--credential", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    unit = read_unit(given.unit)
    calls = allowed_calls(unit)
    credentials = dict(credential.split("=", 1) for credential in given.credential)
    seccomp = ctypes.CDLL("libseccomp.so.2")
    confine_files(unit, given.uid, given.open, credentials)
    confine_user(given.uid)
    confine_calls(seccomp, unit, calls)
    told = dict(value.split("=", 1) for value in unit.get("Environment", ()))
    told |= {"CREDENTIALS_DIRECTORY": CREDENTIALS, **own_folders(unit)}
    os.execve(given.command[0], given.command, os.environ | told)


def read_unit(path: Path) -> Unit:
    """Return the directives of all sections, each with its values in their order."""
    unit: Unit = {}
    for line in path.read_text().splitlines():
        name, is_directive, value = line.partition("=")
        if is_directive and not line.startswith(("#", ";")):
            unit.setdefault(name, []).append(value)
    return unit


def confine_files(unit: Unit, uid: int, opened: Sequence[Path], credentials: Mapping[str, str]) -> None:
    """Apply ProtectSystem=strict, ProtectHome, PrivateTmp, PrivateDevices, PrivateIPC, ProcSubset and NoExecPaths, and
    create the unit's own folders."""
    checked(libc.unshare(NEW_MOUNTS | NEW_IPC))
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    kept = {path: os.open(path, os.O_PATH) for path in opened}
    devices = {Path("/dev", name): os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    not_executed = {path.lstrip("-") for value in unit["NoExecPaths"] for path in value.split()}
    mark("/", READ_ONLY | NO_SUID)
    for folder in HIDDEN:
        mount_empty(folder, "mode=755")
    for folder in TEMPORARY:
        mount_empty(folder, "mode=1777", NO_EXEC if folder in not_executed else 0)
    for device, descriptor in devices.items():
        device.touch()
        mount(f"/proc/self/fd/{descriptor}", str(device), flags=BIND)
    for visible, descriptor in kept.items():
        if not visible.exists():
            visible.mkdir(parents=True)
        mount(f"/proc/self/fd/{descriptor}", str(visible), flags=BIND | RECURSIVE)
    for folder in own_folders(unit).values():
        # The folders of a dynamic user are below a folder named `private`, and a link leads to them.
        names = {folder, folder.replace("/var/lib/", "/var/lib/private/")}
        make_own(folder, uid, NO_EXEC if names & not_executed else 0)
    make_own(CREDENTIALS, uid, NO_EXEC)
    for name, value in credentials.items():
        path = Path(CREDENTIALS, name)
        path.write_text(f"{value}\n")
        path.chmod(0o400)
        os.chown(path, uid, uid)
    mount("proc", "/proc", "proc", NO_SUID | NO_DEVICES | NO_EXEC, "hidepid=invisible,subset=pid")
    for folder in (*HIDDEN, CREDENTIALS):
        mark(folder, READ_ONLY, depth=0)


def make_own(folder: str, uid: int, flags: int) -> None:
    Path(folder).mkdir()
    mount_empty(folder, f"mode=700,uid={uid},gid={uid}", flags)


def own_folders(unit: Unit) -> dict[str, str]:
    """Return the folders that systemd creates for the unit, by the environment variable that contains the path."""
    return {
        name.replace("Directory", "_directory").upper(): f"{place}/{unit[name][0]}"
        for name, place in DIRECTORIES.items()
        if name in unit
    }


def confine_user(uid: int) -> None:
    """Apply DynamicUser, CapabilityBoundingSet, NoNewPrivileges and UMask."""
    for capability in range(LAST_CAPABILITY):
        libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    os.umask(0o077)


def allowed_calls(unit: Unit) -> set[str]:
    """Return the names of the system calls that SystemCallFilter= allows."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True
    )
    sets: dict[str, list[str]] = {}
    for line in shown.stdout.splitlines():
        words = line.split()
        if line.startswith("@"):
            current = sets.setdefault(words[0], [])
        elif words and not words[0].startswith("#"):
            current.append(words[0])
    calls: set[str] = set()
    for value in unit["SystemCallFilter"]:
        names = expanded(value.lstrip("~").split(), sets)
        calls = calls - names if value.startswith("~") else calls | names
    return calls


def expanded(names: Iterable[str], sets: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    for name in names:
        found |= expanded(sets[name], sets) if name.startswith("@") else {name}
    return found


def confine_calls(seccomp: ctypes.CDLL, unit: Unit, calls: set[str]) -> None:
    """Apply SystemCallFilter, SystemCallArchitectures, RestrictAddressFamilies, RestrictNamespaces and
    MemoryDenyWriteExecute."""
    families = [FAMILIES[name] for name in unit["RestrictAddressFamilies"][0].split()]
    both = WRITE | EXECUTE
    some = {
        "socket": [(0, EQUAL, family, 0) for family in families],
        "clone": [(0, MASKED_EQUAL, ANY_NAMESPACE, 0)],
        "mmap": [(2, MASKED_EQUAL, both, part) for part in (0, WRITE, EXECUTE)],
        "mprotect": [(2, MASKED_EQUAL, EXECUTE, 0)],
        "pkey_mprotect": [(2, MASKED_EQUAL, EXECUTE, 0)],
        "shmat": [(2, MASKED_EQUAL, EXECUTE_SHARED, 0)],
    }
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(ERROR | NOT_PERMITTED))
    for name in sorted(calls - {"unshare", "setns"}):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # of another machine
            continue
        action = ERROR | NO_SUCH_CALL if name == "clone3" else ALLOW
        for comparison in some.get(name, [None]):
            compared = () if comparison is None else (Comparison(*comparison),)
            array = (Comparison * len(compared))(*compared)
            checked(seccomp.seccomp_rule_add_array(rules, action, number, len(compared), array))
    checked(seccomp.seccomp_load(rules))


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    checked(libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()))


def mount_empty(folder: str, data: str, flags: int = NO_EXEC) -> None:
    mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES | flags, data)


def mark(folder: str, to_set: int = 0, to_clear: int = 0, depth: int = WHOLE_TREE) -> None:
    """Set and clear mount attributes of the folder and, unless `depth` is 0, of everything that is mounted below it."""
    attributes = Attributes(to_set, to_clear)
    size = ctypes.sizeof(attributes)
    checked(libc.syscall(MOUNT_SETATTR, HERE, folder.encode(), depth, ctypes.byref(attributes), size))


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or -result
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
