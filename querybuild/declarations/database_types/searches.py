"""Searches in texts: the vector of words of one attribute, or of several joined, and the query of a search.

It must not know: values. A search text is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pypika.terms import Term

from querybuild.declarations.database_types.texts import TSVECTOR
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.terms import Template, escaped_braces
from querybuild.declarations.types import REAL, ColumnType
from querybuild.declarations.values import ValueFault, str_of

MAX_SEARCH = 1000
"""How many characters a search text may have."""
MAX_WORD_BYTES = 2000
"""PostgreSQL's limit for a word is 2,046 bytes."""


class SearchedAttribute(Attribute, frozen=True, eq=False):
    """What is searched in as an attribute. parts: the attributes whose words are joined, in their order."""

    parts: tuple[Attribute, ...] = ()


@lru_cache(maxsize=1024)
def searched(parts: tuple[Attribute, ...], *, is_rank: bool = False) -> SearchedAttribute:
    """Return the words of attributes, or the rank of a search in them, as an attribute. Plans compare attributes by
    identity, so the same parts are the same attribute."""
    kind: ColumnType = REAL if is_rank else TSVECTOR
    return SearchedAttribute("searchText", kind, parts=parts)


def is_searchable(attribute: Attribute) -> bool:
    """Return whether the attribute has the operator `search`."""
    return attribute.type is TSVECTOR or bool(attribute.searchable)


def searchable_parts(resource: Resource) -> tuple[Attribute, ...]:
    """Return the attributes in whose words `searchText` searches."""
    return tuple([attribute for attribute in resource.attributes if attribute.searchable and attribute.is_filterable])


def search_vector(parts: tuple[Attribute, ...], column: Callable[[Attribute], Term]) -> Term:
    """Return the words of attributes, in the form that an index has:

    `(COALESCE(to_tsvector('english',"t0"."title"),'')||to_tsvector('english',"t0"."body"))`
    """
    vectors = [_vector(attribute, column(attribute)) for attribute in parts]
    if len(vectors) == 1:
        return vectors[0]
    known = [
        Template("COALESCE({},'')", vector) if attribute.nullable else vector
        for attribute, vector in zip(parts, vectors, strict=True)
    ]
    return Template(f"({'||'.join(['{}'] * len(known))})", *known)


def _vector(attribute: Attribute, column: Term) -> Term:
    return column if attribute.type is TSVECTOR else Template(f"to_tsvector({_config(attribute)},{{}})", column)


def _query(parts: tuple[Attribute, ...], text: Term) -> Term:
    """Return the query of a search text: `websearch_to_tsquery('english',$1)`. A text of several languages is found if
    it is found by the rules of one."""
    configs = dict.fromkeys([_config(attribute) for attribute in parts])
    queries = [Template(f"websearch_to_tsquery({config + ',' if config else ''}{{}})", text) for config in configs]
    return queries[0] if len(queries) == 1 else Template(f"({'||'.join(['{}'] * len(queries))})", *queries)


def search_terms(attribute: Attribute, column: Callable[[Attribute], Term], text: Term) -> tuple[Term, Term]:
    """Return the words of a row, and the query of a search."""
    parts = attribute.parts if isinstance(attribute, SearchedAttribute) else (attribute,)
    return search_vector(parts, column), _query(parts, text)


def _config(attribute: Attribute) -> str:
    """Return the text search configuration as SQL writes it, empty for that of the database."""
    name = attribute.searchable.replace("'", "''")
    return f"'{escaped_braces(name)}'" if name else ""


def search_text(value: object) -> str:
    """Check the text of a search. Raises ValueFault."""
    text = str_of(value)
    if len(text) > MAX_SEARCH or "\0" in text:
        raise ValueFault(f"a text of at most {MAX_SEARCH} characters")
    if any(len(word.encode()) > MAX_WORD_BYTES for word in text.split()):
        raise ValueFault(f"a text whose words have at most {MAX_WORD_BYTES} bytes")
    return text
