"""What a process that answers for months tells Python and the C library about memory. What comes in: nothing. What goes
out: nothing; called once, when all is loaded.
"""

from __future__ import annotations

import ctypes
import gc

COLLECT_AFTER = 100_000
"""New objects that are still there before the collector looks at them: more than several pages of 1,000 resources with
3,000 included, read at the same time, have at once, of which none is part of a cycle."""

KEPT_BYTES = 32 * 1024 * 1024
"""How much freed memory stays with the process. By itself the C library gives the memory of a large answer back after
each, and takes it anew, page by page, for the next: half of the time of encoding that page."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""mallopt(3)"""


def settle() -> None:
    gc.collect()
    # Modules, declarations and statements stay: nobody need look at them again.
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    # Of the GNU C library alone.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
