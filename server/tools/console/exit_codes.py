"""Lists the exit codes of the commands. It must not know: what the commands do."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES = {
    DONE: "The command has done its work. For serve: a signal has ended the server.",
    FAILED: "The command failed, with a line on standard error that says why; or it found what it looks for: "
    "differences (check, migrate verify), pending files (migrate status --check), an error as the answer (explain).",
    WRONG_USAGE: "An argument or a setting is unknown, or its value has a wrong form. Nothing was done.",
    INTERRUPTED: "Ctrl-C has ended the command.",
    TERMINATED: "SIGTERM has ended the command.",
}
"""What each exit code means. Codes above 128 are those of a shell: 128 and the number of the signal."""
