"""The OpenAPI document."""

from typing import Any


def document(version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    return {"openapi": "3.1.0", "info": {"title": "Tableside", "version": version}, "paths": {}}
