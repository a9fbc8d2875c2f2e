"""Declares the built-in catalog. It only uses the public module `waterspout`, as a user's declarations do."""

from __future__ import annotations

from server.resources.examples import PERSON, PHOTO
from server.resources.families import CHILD, PARENT, PARENT_TO_CHILD
from server.resources.people import COMPUTER, GROUP, POST, USER, USER_BIO
from waterspout import Catalog

RESOURCES = (USER, GROUP, POST, USER_BIO, PARENT, CHILD, PARENT_TO_CHILD, COMPUTER, PERSON, PHOTO)


def built_in() -> Catalog:
    """Return the built-in catalog."""
    return Catalog(RESOURCES)
