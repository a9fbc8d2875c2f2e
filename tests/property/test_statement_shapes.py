"""No literal of a statement is in the log, however it is written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.observing.slow import shape_of

SECRET = "s3cr3t"

LITERALS = st.sampled_from(
    [
        *(f"'{SECRET}'", f"E'\\'{SECRET}'", f"'a''{SECRET}'", f"$${SECRET}$$", f"$t$a$$ {SECRET}$t$"),
        *(f"-- {SECRET}\n", f"/*{SECRET}*/", f"/* /* */ {SECRET} */"),
    ]
)
OTHERS = st.sampled_from(["a", " ", ",", '"q"', '"a\'b"', "=", "$1", "(", ")", "1", "'x'", "e ", "\n", "$t", "::text"])


@given(st.lists(st.one_of(LITERALS, OTHERS), max_size=12))
def test_no_literal_is_shown(parts: list[str]) -> None:
    assert SECRET not in shape_of(" ".join(parts))
