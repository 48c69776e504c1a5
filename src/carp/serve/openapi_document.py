"""The description of the service for programs: every status it can answer with, and what each answer holds."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from carp.serve.problems import PROBLEM, TITLES
from carp.serve.response_models import ProblemDocument

EVERYWHERE = (400, 405, 408, 413, 414, 421, 422, 429, 431, 500, 503)
WITH_RETRY = (429, 503)
REFERENCE = "#/components/schemas/"


def describe(app: FastAPI, *, key: bool) -> dict[str, Any]:
    """The OpenAPI document of an app; `key` says whether its service asks for one."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema(ref_template=REFERENCE + "{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    if key:
        schemes = {"key": {"type": "http", "scheme": "bearer"}, "browser": {"type": "http", "scheme": "basic"}}
        document["components"]["securitySchemes"] = schemes
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _describe_refusals(path, operation, key)
    return document


def _describe_refusals(path: str, operation: dict[str, Any], key: bool) -> None:
    statuses = {*EVERYWHERE}
    if path.startswith("/api/"):
        statuses |= {404, 409}
    probe = path in ("/health", "/healthz", "/ready")
    if key and not probe:
        statuses.add(401)
        operation["security"] = [{"key": []}, {"browser": []}]
    responses = operation["responses"]
    for status in sorted(statuses):
        responses[str(status)] = _problem(status)
    for response in responses.values():
        response.setdefault("headers", {})["x-request-id"] = {"schema": {"type": "string"}, "required": True}


def _problem(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": TITLES[status],
        "content": {PROBLEM: {"schema": {"$ref": REFERENCE + "ProblemDocument"}}},
    }
    if status in WITH_RETRY:
        described["headers"] = {"retry-after": {"schema": {"type": "integer"}, "description": "seconds"}}
    return described
