"""The two small resources: persons, whose ids clients may choose, and photos, whose words are JSON."""

from __future__ import annotations

from waterspout import JSONB, TEXT, Attribute, Resource

PERSON = Resource(
    "person",
    "/persons",
    "persons",
    attributes=(Attribute("name", TEXT, required=True),),
    client_ids=True,
)

PHOTO = Resource(
    "photo",
    "/photos",
    "photos",
    attributes=(
        Attribute("name", TEXT, required=True, searchable="english"),
        Attribute("words", JSONB, column="meta", nullable=True, shape=dict),
    ),
)
