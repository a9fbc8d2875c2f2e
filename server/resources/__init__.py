"""The built-in catalog, written against the public module as a user's own would be."""

from __future__ import annotations

from server.resources.examples import PERSON, PHOTO
from server.resources.families import CHILD, PARENT, PARENT_TO_CHILD
from server.resources.people import COMPUTER, GROUP, POST, USER, USER_BIO
from waterspout import Catalog

RESOURCES = (USER, GROUP, POST, USER_BIO, PARENT, CHILD, PARENT_TO_CHILD, COMPUTER, PERSON, PHOTO)


def built_in() -> Catalog:
    return Catalog(RESOURCES)
