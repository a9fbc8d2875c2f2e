"""Parents, children, and the association that says who is whose."""

from __future__ import annotations

from waterspout import TEXT, Attribute, Resource, ToMany, ToOne

PARENT = Resource(
    "parent",
    "/parents",
    "parents",
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(ToMany("children", "parent-to-child-association", foreign_key="parent_id"),),
)

CHILD = Resource(
    "child",
    "/children",
    "children",
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(ToMany("parents", "parent-to-child-association", foreign_key="child_id"),),
)

PARENT_TO_CHILD = Resource(
    "parent-to-child-association",
    "/parent-to-child-association",
    "parent_child_associations",
    attributes=(Attribute("extra_data", TEXT, nullable=True),),
    relationships=(ToOne("parent", "parent", nullable=False), ToOne("child", "child", nullable=False)),
)
