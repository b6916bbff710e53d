"""`odin mcp serve`: Odin as an MCP server. Other agents ask it, let it plan or edit, and read its sessions.

A call is one prompt. Its steps are reported as progress. What needs approval is asked of the other side if it supports
elicitation; otherwise it is denied, as in every run without a user. A client with a handshake is asked during the call.
For the others the call ends with the question; the turn waits until they repeat the call with the answer.
"""

import asyncio
import os
import weakref
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ServedTool
from msgspec import Meta

from odin.config import Options, get_state_dir
from odin.config.paths import SCRATCH_FOLDER
from odin.core.call_events import AskEvent, ToolEnded, ToolStarted, UsageRecorded, UsageTotals
from odin.core.client import Client, close_events
from odin.core.errors import OdinError
from odin.core.event import TurnEnded
from odin.core.event_values import Mode
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer, Interrupt, Prompt
from odin.core.policy import CommandsAsk
from odin.core.private_folders import open_scratch
from odin.core.prompt_follower import FollowedPrompt, PromptFollower
from odin.core.tool import Args, make_schema
from odin.host.manager import SessionManager
from odin.host.stored_sessions import open_project_sessions
from odin.mcp.listing import is_modern
from odin.version import __version__

_INSTRUCTIONS = (
    "Odin is a coding agent that works in the folder it was started in. ask answers questions about the code, plan "
    "writes a plan, edit changes files and runs commands. Pass `session` from an earlier result to continue it."
)
MAX_OPEN_SESSIONS = 4
_MAX_PREVIEW_CHARS = 2_000
_QUESTION = "question"
ANSWER_S = 600.0
"""How long a turn waits for a client that has to repeat its call with the answer."""


class PromptArguments(Args, frozen=True):
    prompt: Annotated[str, Meta(description="What to do, in one prompt.")]
    session: Annotated[str, Meta(description="The session to continue; empty for a new one.")] = ""


class ListArguments(Args, frozen=True):
    limit: int = 20


class TranscriptArguments(Args, frozen=True):
    session: str


_ARGUMENTS: dict[str, tuple[type[Args], str]] = {
    "ask": (PromptArguments, "Answer a question about the project. Nothing is changed."),
    "plan": (PromptArguments, "Write a plan for a change of the project. Nothing is changed."),
    "edit": (PromptArguments, "Change files and run commands in the project."),
    "sessions": (ListArguments, "List the sessions of the project, newest first."),
    "transcript": (TranscriptArguments, "Return a session as Markdown."),
}
_MODES: dict[str, Mode] = {"ask": "ask_mode", "plan": "plan_mode", "edit": "edit_mode"}
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True)

Request = ServerRequestContext[Any]
CallResult = CallToolResult | InputRequiredResult


async def serve(cwd: str, model: str, permission_mode: str, commands_ask: CommandsAsk, *, yes: bool) -> int:
    """Serve until standard input ends."""
    options = Options(
        cwd=cwd, model=model, permission_mode=permission_mode, yes=yes, commands_ask=commands_ask, headless=True
    )
    host = ServedSessions(options)
    server = make_server(host)
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await host.close()
    return 0


def make_server(host: "ServedSessions") -> Server[Any]:
    tools = [
        ServedTool(
            name=name,
            description=about,
            input_schema=make_schema(arguments),
            annotations=_CHANGES if name == "edit" else _READS,
        )
        for name, (arguments, about) in _ARGUMENTS.items()
    ]

    async def list_tools(context: Request, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Request, params: CallToolRequestParams) -> CallResult:
        if params.name not in _ARGUMENTS:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        try:
            arguments = msgspec.convert(params.arguments or {}, _ARGUMENTS[params.name][0])
            if isinstance(arguments, PromptArguments):
                return await host.run(arguments, _MODES[params.name], context, params)
            if isinstance(arguments, TranscriptArguments):
                text = await asyncio.to_thread(host.export_session, arguments.session)
                return CallToolResult(content=[TextContent(text=text)])
            assert isinstance(arguments, ListArguments)
            return _make_result({"result": await host.list_sessions(arguments.limit)})
        except (OdinError, msgspec.ValidationError) as error:
            why = error.describe() if isinstance(error, OdinError) else str(error)
            return CallToolResult(content=[TextContent(text=why)], is_error=True)

    return Server(
        "odin", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _make_result(value: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=msgspec.json.encode(value).decode())], structured_content=value)


class ServedSessions:
    """Runs the prompts of other agents. Those of one session run one after the other, different sessions at once.

    Sessions that no call uses are closed, except for the last few; a later call opens them again.
    """

    def __init__(self, options: Options, max_open: int = MAX_OPEN_SESSIONS, answer_s: float = ANSWER_S) -> None:
        self._options = options
        self._max_open = max_open
        self._answer_s = answer_s
        self._manager = SessionManager()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._waiting: dict[str, tuple[ServedRun, Interaction, asyncio.Task[None]]] = {}
        """The turns that wait until a call is repeated with an answer, by the state that it must bring."""

    async def close(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for run, _, timer in waiting.values():
            timer.cancel()
            await run.give_up()
        await self._manager.close(5.0)

    async def run(
        self, given: PromptArguments, mode: Mode, context: Request, params: CallToolRequestParams
    ) -> CallResult:
        """Run a prompt to its end, or until a client without a handshake has to be asked something."""
        if params.request_state is None:
            run = await self._open(given.session, context)
            op: Prompt | Answer = Prompt(os.urandom(6).hex(), given.prompt, mode)
        else:
            waiting = self._waiting.pop(params.request_state, None)
            if waiting is None:
                raise OdinError("This question is not open any more. Call the tool again.")
            run, asked, timer = waiting
            timer.cancel()
            op = read_form(asked, (params.input_responses or {}).get(_QUESTION))
        try:
            step = await run.advance(context, op)
            while isinstance(step, Interaction):
                form = make_form(step)
                if is_modern(context.protocol_version):
                    state = os.urandom(16).hex()
                    self._waiting[state] = run, step, asyncio.create_task(self._expire(state))
                    return InputRequiredResult(
                        input_requests={_QUESTION: ElicitRequest(params=form)}, request_state=state
                    )
                try:
                    answered = await context.session.elicit_form(
                        form.message, form.requested_schema, context.request_id
                    )
                    op = read_form(step, answered)
                except Exception as error:  # whatever the other side or the package makes of it
                    op = read_form(step, None, f"The client could not be asked: {str(error).rstrip('.')}.")
                step = await run.advance(context, op)
        except BaseException:
            with anyio.CancelScope(shield=True):  # a cancelled scope would cancel the interrupt, too
                await run.give_up()
            raise
        await run.close()
        if step.error and step.reason == "error":
            raise OdinError(f"{step.error} {step.hint}".strip())
        return _make_result(run.describe(step))

    async def _open(self, session: str, context: Request) -> "ServedRun":
        if session:
            session = await asyncio.to_thread(open_project_sessions(self._options.cwd).find, session)
        options = msgspec.structs.replace(self._options, resume=session, can_ask=_can_elicit(context))
        client = await self._manager.open(options)
        client.session.is_kept = True
        async with AsyncExitStack() as stack:
            stack.push_async_callback(client.detach)
            await self._manager.close_unused(self._max_open)
            await stack.enter_async_context(self._locks.setdefault(client.session.id, asyncio.Lock()))
            return ServedRun(client, client.session.id, stack.pop_all())

    async def _expire(self, state: str) -> None:
        """Give up a turn whose question the client does not answer."""
        await asyncio.sleep(self._answer_s)
        await self._waiting.pop(state)[0].give_up()

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


def _can_elicit(context: Request) -> bool:
    """True if the client can be asked with a form, which a client that names no kind can."""
    capabilities = context.session.client_capabilities
    found = None if capabilities is None else capabilities.elicitation
    return found is not None and (found.form is not None or found.url is None)


class ServedRun:
    """One prompt, during one call or several. It holds its session, `held`, until it is closed."""

    def __init__(self, client: Client, session: str, held: AsyncExitStack) -> None:
        self._client = client
        self._session = session
        self._held = held
        self._events = client.stream_events()
        held.callback(close_events, self._events)
        self._follower = PromptFollower()
        self._prompt: FollowedPrompt | None = None
        self._steps = 0
        self._spent = UsageTotals()
        self._denied: list[dict[str, str]] = []

    async def advance(self, context: Request, op: Prompt | Answer) -> TurnEnded | Interaction:
        """Give the session a prompt or an answer. Return the end of the turn, or what must be asked before.

        Raise OdinError if the prompt will get no answer.
        """
        if isinstance(op, Prompt):
            self._prompt = self._follower.follow(op.id)
        followed = self._prompt
        assert followed is not None
        await self._client.submit(op)
        async for envelope in self._events:
            self._follower.apply(envelope)
            event = envelope.event
            if followed.ended is not None:
                return followed.ended
            if followed.loss:
                break
            if isinstance(event, ToolStarted):
                self._steps += 1
                with suppress(Exception):  # the other side need not listen
                    said = f"{event.name} {event.description}"[:200].strip()
                    await context.session.report_progress(self._steps, None, said)
            elif isinstance(event, UsageRecorded):
                self._spent += UsageTotals.from_event(event)
            elif isinstance(event, ToolEnded) and event.status == "denied":
                self._denied.append({"tool": event.name, "reason": event.text})
            elif isinstance(event, AskEvent):
                interaction = make_interaction(event, envelope.agent)
                if interaction.kind != "plan":
                    return interaction
                await self._client.submit(read_form(interaction, None))
        raise OdinError(followed.loss or "The session was closed.")

    def describe(self, ended: TurnEnded) -> dict[str, Any]:
        """Return the result of the call."""
        return {
            "session": self._session,
            "answer": ended.text,
            "reason": ended.reason,
            "steps": ended.steps,
            "cost_usd": self._spent.known_cost_usd,
            **({"plan": ended.plan_path} if ended.plan_path else {}),
            **({"denied": self._denied} if self._denied else {}),
        }

    async def give_up(self) -> None:
        """Interrupt the turn: it must not outlive its call."""
        with suppress(OdinError):
            await self._client.submit(Interrupt("drop"))
        await self.close()

    async def close(self) -> None:
        await self._held.aclose()


def make_form(asked: Interaction) -> ElicitRequestFormParams:
    """Return the form that asks the user of the other side."""
    if asked.kind != "permission":
        fields: dict[str, Any] = {}
        for number, question in enumerate(asked.questions, 1):
            field: dict[str, Any] = {"type": "string", "description": f"{question.header}: {question.text}"}
            if question.options and not question.multiple:
                field["enum"] = [option.label for option in question.options]
            fields[f"answer_{number}"] = field
        schema = {"type": "object", "properties": fields, "required": [*fields]}
        return ElicitRequestFormParams(message="Odin has questions.", requested_schema=schema)
    facts = asked.permission
    preview, missing = facts.preview, len(facts.preview) - _MAX_PREVIEW_CHARS
    if missing > 0:
        more = " at least" if "\n... cut: " in preview[_MAX_PREVIEW_CHARS:] else ""
        preview = f"{preview[:_MAX_PREVIEW_CHARS]}\n... cut:{more} {missing:,} more characters are not shown"
    what = facts.title or f"{facts.name} {facts.subject}".strip()
    parts = [f"Odin wants to run: {what}", facts.subject, facts.effect, facts.reason, preview]
    decisions = {
        "decision": {"type": "string", "enum": ["allow", "deny"], "description": "May Odin do this?"},
        "comment": {"type": "string", "description": "Why not, or what to do instead."},
    }
    schema = {"type": "object", "properties": decisions, "required": ["decision"]}
    return ElicitRequestFormParams(
        message="\n".join(dict.fromkeys(part for part in parts if part)), requested_schema=schema
    )


def read_form(asked: Interaction, answered: Any, problem: str = "The client sent no answer.") -> Answer:
    """Return what the other side filled in; if it did not answer, nobody has decided, and `problem` says why."""
    if asked.kind == "plan":  # it is the result of the call, and not asked about
        return Answer(asked.id, asked.default, by="mcp")
    if not isinstance(answered, ElicitResult):
        return Answer(asked.id, asked.default, problem, by="nobody")
    given: dict[str, Any] = dict(answered.content or {}) if answered.action == "accept" else {}
    if asked.kind != "permission":
        values = (given.get(f"answer_{number}") for number, _ in enumerate(asked.questions, 1))
        answers = tuple((str(value),) if value else () for value in values)
        return Answer(asked.id, "answer" if any(answers) else "cancel", answers=answers, by="mcp")
    choice = "allow_once" if given.get("decision") == "allow" else "deny"
    return Answer(asked.id, choice, str(given.get("comment") or ""), by="mcp")
