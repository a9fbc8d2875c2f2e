"""Whether a document is a valid OpenAPI document."""

from __future__ import annotations

from typing import Any


def validate_openapi(document: dict[str, Any]) -> None:
    """Raise an error of `openapi_spec_validator` unless the document is valid."""
    # Its import takes more than a second, and each process of the tests imports every module of tests.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(document).validate()
