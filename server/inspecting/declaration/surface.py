"""Tells which declarations exist, so that what cannot be declared yet becomes a comment."""

from querybuild.declarations.resource import Id, ToOne

HAS_COMPOSITE_KEYS = "columns" in Id.__struct_fields__
HAS_REFERENCES = "references" in ToOne.__struct_fields__
