"""`odin mcp serve`: Odin as an MCP server. Other agents ask it, let it plan or edit, and read its sessions.

A call is one prompt. Its steps are reported as progress. What needs approval is asked through elicitation if the other
side supports it; otherwise it is denied, as in every run without a user.
"""

import asyncio
import os
import weakref
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ClientCapabilities, ElicitationCapability, ToolAnnotations
from pydantic import Field

from odin.config import Options, get_state_dir
from odin.config.paths import SCRATCH_FOLDER
from odin.core.call_events import AskEvent, ToolEnded, ToolStarted, UsageRecorded, UsageTotals
from odin.core.client import Client, close_events
from odin.core.errors import OdinError
from odin.core.event import Envelope, TurnEnded
from odin.core.event_values import Mode
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer, Interrupt, Prompt
from odin.core.policy import CommandsAsk
from odin.core.private_folders import open_scratch
from odin.core.prompt_follower import PromptFollower
from odin.host.manager import SessionManager
from odin.host.stored_sessions import open_project_sessions
from odin.version import __version__

_INSTRUCTIONS = (
    "Odin is a coding agent that works in the folder it was started in. ask answers questions about the code, plan "
    "writes a plan, edit changes files and runs commands. Pass `session` from an earlier result to continue it."
)
MAX_OPEN_SESSIONS = 4
_MAX_PREVIEW_CHARS = 2_000
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True)

Text = Annotated[str, Field(description="What to do, in one prompt.")]
ResultT = TypeVar("ResultT")
SessionId = Annotated[str, Field(description="The session to continue; empty for a new one.")]


async def serve(cwd: str, model: str, permission_mode: str, commands_ask: CommandsAsk, *, yes: bool) -> int:
    """Serve until standard input ends."""
    options = Options(
        cwd=cwd, model=model, permission_mode=permission_mode, yes=yes, commands_ask=commands_ask, headless=True
    )
    host = ServedSessions(options)
    try:
        await make_server(host).run_stdio_async()
    finally:
        await host.close()
    return 0


def make_server(host: "ServedSessions") -> MCPServer:
    server = MCPServer("odin", instructions=_INSTRUCTIONS, version=__version__)

    @server.tool(annotations=_READS)
    async def ask(prompt: Text, context: Context, session: SessionId = "") -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """Answer a question about the project. Nothing is changed."""
        return await _tell_errors(host.run(prompt, "ask_mode", session, context))

    @server.tool(annotations=_READS)
    async def plan(prompt: Text, context: Context, session: SessionId = "") -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """Write a plan for a change of the project. Nothing is changed."""
        return await _tell_errors(host.run(prompt, "plan_mode", session, context))

    @server.tool(annotations=_CHANGES)
    async def edit(prompt: Text, context: Context, session: SessionId = "") -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """Change files and run commands in the project."""
        return await _tell_errors(host.run(prompt, "edit_mode", session, context))

    @server.tool(annotations=_READS)
    async def sessions(limit: int = 20) -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction]
        """List the sessions of the project, newest first."""
        return await _tell_errors(host.list_sessions(limit))

    @server.tool(annotations=_READS)
    async def transcript(session: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Return a session as Markdown."""
        return await _tell_errors(asyncio.to_thread(host.export_session, session))

    return server


async def _tell_errors(work: Awaitable[ResultT]) -> ResultT:
    """Return the result of a call. The package shows the other side the text of no other error."""
    try:
        return await work
    except OdinError as error:
        raise ToolError(error.describe()) from error


class ServedSessions:
    """Runs the prompts of other agents. Those of one session run one after the other, different sessions at once.

    Sessions that no call uses are closed, except for the last few; a later call opens them again.
    """

    def __init__(self, options: Options, max_open: int = MAX_OPEN_SESSIONS) -> None:
        self._options = options
        self._max_open = max_open
        self._manager = SessionManager()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def close(self) -> None:
        await self._manager.close(5.0)

    async def run(self, text: str, mode: Mode, session: str, context: Context) -> dict[str, Any]:
        """Run a prompt to its end and return the answer."""
        if session:
            session = await asyncio.to_thread(open_project_sessions(self._options.cwd).find, session)
        options = msgspec.structs.replace(self._options, resume=session, can_ask=_can_elicit(context))
        client = await self._manager.open(options)
        client.session.is_kept = True
        await self._manager.close_unused(self._max_open)
        try:
            async with self._locks.setdefault(client.session.id, asyncio.Lock()):
                run = _Run(client, context)
                ended = await run.run(text, mode)
        finally:
            await client.detach()
        if ended.error and ended.reason == "error":
            raise OdinError(f"{ended.error} {ended.hint}".strip())
        return {
            "session": client.session.id,
            "answer": ended.text,
            "reason": ended.reason,
            "steps": ended.steps,
            "cost_usd": run.spent.known_cost_usd,
            **({"plan": ended.plan_path} if ended.plan_path else {}),
            **({"denied": run.denied} if run.denied else {}),
        }

    async def list_sessions(self, limit: int) -> list[dict[str, Any]]:
        found = await asyncio.to_thread(open_project_sessions(self._options.cwd).list_sessions)
        return [
            {"session": item.id, "title": item.title or item.first, "turns": item.turns, "model": item.model}
            for item in found[: max(1, min(limit, 200))]
        ]

    def export_session(self, session: str) -> str:
        """Return a session as Markdown. Raise OdinError if there is no such session."""
        with open_scratch(get_state_dir(os.environ) / SCRATCH_FOLDER) as folder:
            path = open_project_sessions(self._options.cwd).export(session, "markdown", f"{folder}/transcript.md")
            return Path(path).read_text(encoding="utf-8")


def _can_elicit(context: Context) -> bool:
    session = context.request_context.session
    return session.check_client_capability(ClientCapabilities(elicitation=ElicitationCapability()))


class _Run:
    """One prompt: follows its events, reports progress and asks the other side. `denied` are calls that did not run."""

    def __init__(self, client: Client, context: Context) -> None:
        self._client = client
        self._context = context
        self._steps = 0
        self.spent = UsageTotals()
        self.denied: list[dict[str, str]] = []

    async def run(self, text: str, mode: Mode) -> TurnEnded:
        """Return the end of the turn that answers. Raise OdinError if none does."""
        prompt = Prompt(os.urandom(6).hex(), text, mode)
        follower = PromptFollower()
        followed = follower.follow(prompt.id)
        events = self._client.stream_events()
        try:
            await self._client.submit(prompt)
            try:
                async for envelope in events:
                    follower.apply(envelope)
                    if followed.ended is not None:
                        return followed.ended
                    if followed.loss:
                        break
                    await self._follow(envelope)
            except BaseException:
                # the turn must not outlive its call; and a cancelled scope would cancel the interrupt, too
                with anyio.CancelScope(shield=True), suppress(OdinError):
                    await self._client.submit(Interrupt("drop"))
                raise
            raise OdinError(followed.loss or "The session was closed.")
        finally:
            close_events(events)

    async def _follow(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, ToolStarted):
            self._steps += 1
            with suppress(Exception):  # the other side need not listen
                await self._context.report_progress(
                    self._steps, None, f"{event.name} {event.description}"[:200].strip()
                )
        elif isinstance(event, UsageRecorded):
            self.spent += UsageTotals.from_event(event)
        elif isinstance(event, ToolEnded) and event.status == "denied":
            self.denied.append({"tool": event.name, "reason": event.text})
        elif isinstance(event, AskEvent):
            await self._client.submit(await self._answer(make_interaction(event, envelope.agent)))

    async def _answer(self, interaction: Interaction) -> Answer:
        """Ask the other side. A plan is not asked about: it is the result of the call."""
        if interaction.kind == "plan":
            return Answer(interaction.id, interaction.default, by="mcp")
        if interaction.kind != "permission":
            fields: dict[str, Any] = {}
            for number, question in enumerate(interaction.questions, 1):
                field: dict[str, Any] = {"type": "string", "description": f"{question.header}: {question.text}"}
                if question.options and not question.multiple:
                    field["enum"] = [option.label for option in question.options]
                fields[f"answer_{number}"] = field
            given = await self._request_input("Odin has questions.", fields, [*fields])
            answers = tuple((str(given[name]),) if given.get(name) else () for name in fields)
            return Answer(interaction.id, "answer" if any(answers) else "cancel", answers=answers, by="mcp")
        asked = interaction.permission
        preview, missing = asked.preview, len(asked.preview) - _MAX_PREVIEW_CHARS
        if missing > 0:
            more = " at least" if "\n... cut: " in preview[_MAX_PREVIEW_CHARS:] else ""
            preview = f"{preview[:_MAX_PREVIEW_CHARS]}\n... cut:{more} {missing:,} more characters are not shown"
        what = asked.title or f"{asked.name} {asked.subject}".strip()
        parts = [f"Odin wants to run: {what}", asked.subject, asked.effect, asked.reason, preview]
        message = "\n".join(dict.fromkeys(part for part in parts if part))
        fields = {
            "decision": {"type": "string", "enum": ["allow", "deny"], "description": "May Odin do this?"},
            "comment": {"type": "string", "description": "Why not, or what to do instead."},
        }
        given = await self._request_input(message, fields, ["decision"])
        choice = "allow_once" if given.get("decision") == "allow" else "deny"
        return Answer(interaction.id, choice, str(given.get("comment") or ""), by="mcp")

    async def _request_input(self, message: str, fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
        """Return what the other side filled in; nothing if it declined, or could not ask."""
        schema: Any = {"type": "object", "properties": fields, "required": required}
        request = self._context.request_context
        try:
            result = await request.session.elicit_form(message, schema, request.request_id)
        except Exception as error:  # whatever the other side or the package makes of it
            return {"comment": f"The client could not be asked: {error}"}
        return dict(result.content or {}) if result.action == "accept" else {}
