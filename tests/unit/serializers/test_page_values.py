"""Values as HTML."""

from __future__ import annotations

import markupsafe

from serializers.pages.values import cell, escape


def test_every_character_is_escaped_as_markupsafe_does() -> None:
    for number in range(0x3000):
        text = f"a{chr(number)}b"
        assert escape(text) == str(markupsafe.escape(text)), number
    assert escape("<a href='x'>&\"") == "&lt;a href=&#39;x&#39;&gt;&amp;&#34;"


def test_a_text_with_a_colon_may_be_no_link() -> None:
    assert cell("at 10:30") == "<bdi>at 10:30</bdi>"
    assert cell("javascript:alert(1)") == "<bdi>javascript:alert(1)</bdi>"
    assert cell("mailto:a@b.c").startswith('<a href="mailto:a@b.c" rel="noopener noreferrer nofollow">')
