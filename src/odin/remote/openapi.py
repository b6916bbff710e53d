"""The OpenAPI description of the protocol, made of `ENDPOINTS`. It is checked in as docs/openapi.json."""

from typing import Any, get_args

import msgspec

from odin.core.event import Envelope
from odin.core.op import Op
from odin.core.rights import OP_RIGHTS
from odin.remote.protocol import ENDPOINTS, MAX_BODY_BYTES, RUN_HEADER, VERSION_HEADER, ApiEndpoint, Problem

_ABOUT = f"""The sessions of `odin serve`, and of a process that has one open.

Except for `POST /pair` and `POST /shared`, each request needs `Authorization: Bearer TOKEN`. Each answer has the
headers `{VERSION_HEADER}` and `{RUN_HEADER}`; a client that sends `{VERSION_HEADER}` is refused if it is another one.
Bodies have at most {MAX_BODY_BYTES:,} bytes. Errors are a `Problem`."""


def build_openapi(version: str) -> dict[str, Any]:
    """Return the description as JSON data."""
    types = [Envelope, Problem, Op]
    for endpoint in ENDPOINTS.values():
        types += [kind for kind in (endpoint.body, endpoint.result, endpoint.query) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named = dict(zip(map(id, types), schemas, strict=True))
    for kind in get_args(Op):
        components[kind.__name__]["x-odin-right"] = OP_RIGHTS[kind]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS.values():
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _describe(endpoint, named, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Odin Code", "version": version, "description": _ABOUT},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted(components.items())),
        },
    }


def _describe(endpoint: ApiEndpoint, named: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    if "{session}" in endpoint.path:
        parameters.append({"name": "session", "in": "path", "required": True, "schema": {"type": "string"}})
    query = components[endpoint.query.__name__]
    for name, schema in query.get("properties", {}).items():
        required = name in query.get("required", ())
        parameters.append({"name": name, "in": "query", "required": required, "schema": schema})
    good: dict[str, Any] = {"description": "Done."}
    if endpoint.name == "events":
        note = "Server-sent events; the data of each is an envelope, and its id the number of a durable one."
        good = {"description": note, "content": {"text/event-stream": {"itemSchema": named[id(Envelope)]}}}
        header = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer"}}
        parameters.append({**header, "description": "Replaces `after`."})
    elif endpoint.result is not None:
        good = {"description": "The result.", "content": {"application/json": {"schema": named[id(endpoint.result)]}}}
    problem = {"description": "An error.", "content": {"application/json": {"schema": named[id(Problem)]}}}
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "x-odin-right": endpoint.right or "none",
        "responses": {"200": good, "default": problem},
    }
    if parameters:
        found["parameters"] = parameters
    if endpoint.body is not None:
        schema = named[id(endpoint.body)]
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if endpoint.right is None:
        found["security"] = []
    return found
