"""Tells which declarations exist, so that what cannot be declared yet becomes a comment."""

from querybuild.declarations.resource import ToOne

HAS_REFERENCES = "references" in ToOne.__struct_fields__
