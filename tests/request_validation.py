"""Validates the requests that Odin sends in a test by the types of the vendors' SDKs."""

import pytest

from odin.testing import ScriptedServer, SeenRequest
from tests.providers import vendor_types


def record_servers(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedServer]:
    """Return a list to which every scripted server that the test starts is added."""
    started: list[ScriptedServer] = []
    start = ScriptedServer.start

    def record(self: ScriptedServer, log: object = None) -> ScriptedServer:
        started.append(self)
        return start(self, log)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ScriptedServer, "start", record)
    return started


def find_invalid_requests(servers: list[ScriptedServer]) -> list[str]:
    """Return the problems of the last accepted requests. A request contains the conversation of those before it."""
    found: list[str] = []
    for server in servers:
        refused = {id(seen) for seen, _ in server.rejected}
        last: dict[tuple[str, str, bool], SeenRequest] = {}
        for seen in server.requests:
            if seen.headers.get("user-agent", "").startswith("odin") and seen.json and id(seen) not in refused:
                last[seen.api, seen.model, bool(seen.tool_names)] = seen
        for seen in last.values():
            body = {key: value for key, value in seen.json.items() if seen.api != "gemini" or key != "model"}
            found += vendor_types.find_problems(seen.api, body)
    return found
