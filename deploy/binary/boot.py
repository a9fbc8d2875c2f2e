"""The first module of the program in one file: imports from the archive behind it, then the command line.

In: the archive that is `sys.path[0]`, and `_extensions` in it: for each extension module its entry and those of the
libraries that it needs. Out: `main`. It must not know: what the modules are for.

The dynamic linker takes files alone. So an extension module is copied into a file that exists in memory only, which
needs no folder that can be both written to and executed from (memfd_create(2)).
"""

import atexit
import itertools
import marshal
import os
import sys
import zipimport
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

import _launcher

ARCHIVE = sys.path[0]
CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)

_archive = zipimport.zipimporter(ARCHIVE)
_extensions: dict[str, tuple[str, list[str]]] = marshal.loads(_archive.get_data(f"{ARCHIVE}/_extensions"))
_loaded: set[str] = set()
_numbers = itertools.count()


class Extensions(ExtensionFileLoader):
    """Finds and loads the extension modules of the archive."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `sys.meta_path` wants it."""
        return ModuleSpec(name, cls(name, ARCHIVE)) if name in _extensions else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, after the libraries that it needs."""
        entry, libraries = _extensions[spec.name]
        for library in libraries:
            if library not in _loaded:
                descriptor, path = _file_of(library)
                _launcher.load(path)
                os.close(descriptor)
                _loaded.add(library)
        descriptor, spec.origin = _file_of(entry)
        try:
            return super().create_module(spec)
        finally:
            os.close(descriptor)


def _file_of(entry: str) -> tuple[int, str]:
    """A file with these bytes of the archive, open, and its path, which is there until it is closed."""
    try:
        descriptor = os.memfd_create(entry)
    except OSError:
        descriptor, path = _temporary_file()
    else:
        # The linker takes two libraries of one path for the same one, and numbers come again: the points keep the
        # paths apart.
        path = f"/proc/self/fd/{'./' * next(_numbers)}{descriptor}"
        if not os.path.exists(path):
            os.close(descriptor)
            descriptor, path = _temporary_file()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(_archive.get_data(f"{ARCHIVE}/{entry}"))
    return descriptor, path


def _temporary_file() -> tuple[int, str]:
    """Where there are no files in memory, or no /proc to name them by."""
    path = f"{os.environ.get('TMPDIR', '/tmp')}/waterspout-{os.urandom(8).hex()}.so"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o700)
    atexit.register(os.unlink, path)
    return descriptor, path


def _find_certificates() -> None:
    """OpenSSL looks where the machine has them that it was built on."""
    if "SSL_CERT_FILE" not in os.environ and "SSL_CERT_DIR" not in os.environ:
        found = next(filter(os.path.exists, CERTIFICATES), None)
        if found is not None:
            os.environ["SSL_CERT_FILE"] = found


def main() -> None:
    """The command line of waterspout."""
    sys.meta_path.insert(0, Extensions)
    sys.frozen = True  # type: ignore[attr-defined] # as other makers of such programs say it
    _find_certificates()
    from server.__main__ import main as command_line

    command_line(prog_name="waterspout")
