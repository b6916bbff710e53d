"""Odin as the client that the conformance suite drives: python -m tests.mcp_client.referees.client URL

The model is scripted: it calls every tool that it is offered once. The user says yes to everything, leaves questions at
their defaults, and signs in whenever Odin says so, as with `odin mcp login`.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from odin.app import open_session
from odin.config import Options
from odin.config.settings import McpServerSettings
from odin.core.call_events import PermissionAsked, QuestionsAsked, ToolEnded
from odin.core.event import TurnEnded
from odin.core.op import AnswerPermission, AnswerQuestions, Prompt
from odin.mcp.oauth import log_in
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say

DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the suite knows; it is never fetched."""

MAX_SIGN_INS = 3
LIMITS = {"wait_s": 100, "connect_s": 100}
"""A busy machine is no fault of a server."""

SERVER = "judge"
_EXAMPLES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def make_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a schema as far as its types say."""
    fields: dict[str, dict[str, Any]] = schema.get("properties") or {}
    wanted: list[str] = schema.get("required") or []
    return {
        name: field["enum"][0] if field.get("enum") else _EXAMPLES.get(str(field.get("type")), "x")
        for name, field in fields.items()
        if name in wanted
    }


def make_player(calls: list[dict[str, Any]]) -> Any:
    """Return the script of a model that makes these calls, or calls each tool it is offered."""

    def play(seen: SeenRequest) -> Turn:
        if seen.results:
            return say("done")
        offered = {
            tool["name"]: tool["input_schema"] for tool in seen.json["tools"] if tool["name"].startswith("mcp__")
        }
        wanted: list[tuple[str, Any]] = [(f"mcp__{SERVER}__{one['name']}", one.get("arguments") or {}) for one in calls]
        wanted = wanted or [(name, make_arguments(schema)) for name, schema in offered.items()]
        turns = [call(name, given, id=f"c{number}") for number, (name, given) in enumerate(wanted)]
        return msgspec.structs.replace(turns[0], calls=tuple(one.calls[0] for one in turns)) if turns else say("none")

    return play


async def run_once(folder: Path, env: dict[str, str], calls: list[dict[str, Any]]) -> str:
    """Answer one prompt. Return everything that was said about the server."""
    said: list[str] = []
    with ScriptedServer(make_player(calls), strict=False) as model:
        given: dict[str, Any] = {"cwd": str(folder), "env": {**env, **model.env("anthropic")}, "can_ask": True}
        session = await open_session(Options(**given, headless=True, yes=True))
        stream = session.stream_events()
        await session.submit(Prompt("p1", "Go."))
        async for envelope in stream:
            event = envelope.event
            if isinstance(event, PermissionAsked):
                await session.submit(AnswerPermission(event.ask_id, True))
            elif isinstance(event, QuestionsAsked):
                answers = tuple(tuple(option.label for option in one.options[:1]) for one in event.questions)
                await session.submit(AnswerQuestions(event.ask_id, answers))
            elif isinstance(event, ToolEnded):
                said.append(f"{event.name}: {event.text}")
            elif isinstance(event, TurnEnded):
                break
        said += [f"{server.name}: {server.detail}" for server in (await session.get_info()).servers]
        await session.close()
    return "\n".join(said)


def follow(page: str) -> None:
    def open_it() -> None:
        try:
            with urllib.request.urlopen(page) as answer:
                answer.read()
        except OSError as error:
            sys.stderr.write(f"The page: {error}\n")

    threading.Thread(target=open_it, daemon=True).start()


async def main(url: str) -> None:
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth = {name: context[name] for name in ("client_id", "client_secret") if context.get(name)}
    settings = {"url": url, "oauth": oauth or {"client_metadata_url": DOCUMENT}}
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "work")
        folder.mkdir()
        config = Path(home, ".config/odin/odinconfig.json")
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"mcp": {SERVER: settings}, "mcp_limits": LIMITS}))
        env = {"HOME": home, "PATH": os.environ["PATH"]}
        for _ in range(MAX_SIGN_INS):
            said = await run_once(folder, env, context.get("toolCalls") or [])
            sys.stdout.write(f"{said}\n")
            if f"odin mcp login {SERVER}" not in said:
                break
            done = await log_in(SERVER, msgspec.convert(settings, McpServerSettings), env, follow)
            sys.stdout.write(f"signed in: {done}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
