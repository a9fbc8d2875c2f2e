"""The contexts of principals: they go with their principals."""

from __future__ import annotations

import gc
from weakref import ref

from querybuild.planning.context import View
from querybuild.planning.rules import Rules
from querybuild.principal import Principal
from waterspout import SIGNED_IN, SUBJECT, TEXT, Allow, Attribute, Catalog, Resource

OWN = Allow(SIGNED_IN, "read", rows={"name": "owner", "op": "eq", "val": SUBJECT})


def test_a_context_is_kept_only_as_long_as_its_principal() -> None:
    note = Resource("note", "/notes", "notes", (Attribute("owner", TEXT),), access=(OWN,))
    rules = Rules(View(Catalog([note])))
    principal = Principal(subject="ann")
    context = rules.context_of(principal)
    assert (context.values, context.principal) == (("ann",), principal)
    is_kept = ref(principal)
    del principal, context
    gc.collect()
    assert is_kept() is None
