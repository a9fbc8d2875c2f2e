"""Tunes the garbage collector and the C allocator for a process that runs for months."""

from __future__ import annotations

import ctypes
import gc

COLLECT_AFTER = 100_000
"""How many new objects survive before the collector runs. Several pages of 1,000 resources with 3,000 included, read at
the same time, have fewer, and none of these objects is part of a cycle."""

KEPT_BYTES = 32 * 1024 * 1024
"""How much freed memory stays with the process. By default the C library returns the memory of a large response to the
system and asks for it again, page by page, for the next one. That took half of the time of encoding such a response."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""mallopt(3)"""


def tune_memory() -> None:
    """Freeze the objects that exist and set the thresholds. Call it once, when everything is loaded."""
    gc.collect()
    # Modules, declarations and statements stay: the collector need not scan them again.
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    # Only the GNU C library has it.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
