"""JSON lines: `odin headless --format jsonl`, for front ends of any language (docs/jsonl.md).

Lines go out as events happen, and each command gets one answer. Nothing that a client writes ends the process.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from typing import Any, TextIO

from msgspec import UNSET
from msgspec.structs import replace

from odin.core.call_events import AnswerEvent
from odin.core.client import Client, SessionInfo, SessionSummary, Snapshot
from odin.core.errors import OdinError, UsageError
from odin.core.event import ContextAdded, Envelope, ModeChanged
from odin.core.event_values import Mode
from odin.core.interaction import Interaction, InteractionKind
from odin.core.message import Attachment
from odin.core.op import Answer, Interrupt, Prompt, RunUserShell, SetModel
from odin.core.text import suggest_similar
from odin.ui.exit import EXIT_READER_GONE
from odin.ui.jsonl import commands, payloads
from odin.ui.jsonl.slash_commands import find_builtin_command, run_builtin_command
from odin.ui.jsonl.translator import EventTranslator, present_request
from odin.ui.line_server import LineServer, parse_mode, run_server
from odin.ui.pipes import PipeWriter
from odin.ui.slash_commands.actions import CommandContext, refuse_unknown_command

ListSessions = Callable[[], Awaitable[tuple[SessionSummary, ...]]]

_DISMISSED = "The user did not answer this, but wrote a message instead."

_ANSWERED_BY: dict[InteractionKind, str] = {
    "permission": "confirm",
    "questions": "question",
    "elicitation": "question",
    "plan": "handoff",
}


async def run_jsonl(
    client: Client,
    *,
    out: TextIO | None,
    lines_in: AsyncIterator[bytes],
    prompt: Prompt | None = None,
    default_mode: Mode = "edit_mode",
    include_deltas: bool = False,
    output_schema: dict[str, Any] | None = None,
    list_sessions: ListSessions | None = None,
    owns_process: bool = False,
) -> int:
    """Serve one client until its input ends and all work is done. Return the exit code.

    `default_mode` is the mode of prompts that name none. Answers match the `output_schema`. If it `owns_process`,
    signals end it.
    """
    if out is None:
        return EXIT_READER_GONE
    info = await client.get_info()
    events = client.stream_events()
    types = payloads.EVENT_TYPES if include_deltas else payloads.DEFAULT_TYPES
    make = partial(_JsonlServer, client, info, default_mode, types, output_schema, list_sessions)
    return await run_server(
        make, client, events=events, out=out, lines_in=lines_in, prompt=prompt, owns_process=owns_process
    )


class _JsonlServer(LineServer):
    """`types` are the events that are sent. A command is carried out by the method with its name."""

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        mode: Mode,
        types: Collection[str],
        output_schema: dict[str, Any] | None,
        list_sessions: ListSessions | None,
        output: PipeWriter,
        watch: Callable[[Envelope], None],
    ) -> None:
        super().__init__(client, output, watch)
        self._info = info
        self._mode: Mode = mode
        self._types = types
        self._output_schema = output_schema
        self._list_sessions = list_sessions
        self._translator = EventTranslator()
        self._requests: dict[str, Interaction] = {}
        self._shells: set[str] = set()

    # --- lines out ---

    async def start(self, shot: Snapshot) -> None:
        info = self._info
        if shot.executing:
            self._mode = shot.agent_mode
        self._send(
            payloads.ReadyPayload(
                seq=shot.seq,
                protocol=payloads.PROTOCOL,
                version=info.version,
                cwd=info.cwd,
                model=info.model,
                mode=self._mode,
                permission_mode=info.permission_mode,
                role=info.role,
                roles=tuple(agent.name for agent in await self._client.list_agents() if agent.is_role),
                working=shot.is_working,
                commands=tuple(commands.COMMANDS),
                events=payloads.EVENT_TYPES,
                slash_commands=tuple(command.name for command in await self._client.list_commands()),
                notice=info.notice,
                warnings=info.warnings,
            )
        )
        for interaction in shot.interactions:
            self._ask(present_request(interaction))

    def _ask(self, payload: payloads.RequestPayload) -> None:
        if payload.id not in self._requests:  # or it was pending at the start
            self._requests[payload.id] = payload.request
            self._tell(payload)

    def _send(self, payload: payloads.Payload) -> None:
        payload = payload if payload.session else replace(payload, session=self._info.session)
        self._output.write_json(payload.encode())

    def _tell(self, payload: payloads.Payload) -> None:
        """Send an event if the client has subscribed to it."""
        if payload.get_type() in self._types:
            self._send(payload)

    async def tell_event(self, envelope: Envelope) -> None:
        event = envelope.event
        for payload in self._translator.translate(envelope):
            if isinstance(payload, payloads.RequestPayload):
                self._ask(payload)
            else:
                self._tell(payload)
        if isinstance(event, AnswerEvent):
            self._requests.pop(event.ask_id, None)
        elif isinstance(event, ModeChanged) and not envelope.agent:
            self._mode = event.mode
        elif isinstance(event, ContextAdded) and event.id in self._shells:
            self._shells.discard(event.id)
            self._finish_if_done()

    def tell_idle(self) -> None:
        if not self._is_idle_told:
            self._is_idle_told = True
            self._tell(payloads.IdlePayload(last_outcome=self._last_outcome))

    def refuse(self, prompt_id: str, error: OdinError) -> None:
        self._tell(payloads.ErrorPayload(message=error.describe(), kind=error.kind, turn=prompt_id))
        self._finish_prompt(prompt_id)

    @property
    def _expects_more(self) -> bool:
        return super()._expects_more or (bool(self._shells) and not self._is_stopping)

    # --- lines in ---

    def close_input(self) -> None:
        self._requests.clear()

    async def route_line(self, line: bytes, number: int) -> None:
        """Answers to requests are handled at once, because a prompt that is being sent may wait for them."""
        parsed = commands.parse_line(line)
        handle = partial(self._answer, parsed, number)
        match parsed.command:
            case commands.SendCommand() as command if find_builtin_command(command.text) is None:
                prompt_id = os.urandom(6).hex()
                self._follower.follow(prompt_id, command.agent)  # a `cancel` that follows is about this prompt
                self._ordered.put_nowait(partial(self._answer, parsed, number, prompt_id))
            case (
                commands.SendCommand()
                | commands.LocalShellCommand()
                | commands.ModelsCommand()
                | commands.SessionsCommand()
            ):
                self._ordered.put_nowait(handle)
            case _:
                await handle()

    async def _answer(self, parsed: commands.ParsedLine, number: int, prompt_id: str = "") -> None:
        """Carry out a command, and send its answer."""
        try:
            answer = await self._run(parsed, prompt_id)
        except OdinError as error:
            answer = payloads.ErrorPayload(message=error.describe(), kind=error.kind, line=number)
        self._send(replace(answer, id=parsed.id, command=parsed.type))
        if prompt_id and isinstance(answer, payloads.ErrorPayload):
            self._finish_prompt(prompt_id)

    async def _run(self, parsed: commands.ParsedLine, prompt_id: str) -> payloads.AnswerPayload:
        if parsed.error is not None:
            raise parsed.error
        match parsed.command:
            case commands.SubscribeCommand() as command:
                return self._subscribe(command)
            case commands.StatusCommand():
                return await self._report_status()
            case commands.SendCommand() as command:
                return await self._send_text(command, prompt_id)
            case commands.ConfirmCommand() as command:
                return await self._confirm(command)
            case commands.QuestionCommand() as command:
                return await self._answer_questions(command)
            case commands.HandoffCommand() as command:
                return await self._decide(command)
            case commands.ModelsCommand() as command:
                return await self._list_or_set_model(command)
            case commands.SessionsCommand():
                if self._list_sessions is None:
                    raise UsageError("The sessions cannot be listed here.", "`odin sessions` lists them.")
                return payloads.SessionListPayload(sessions=await self._list_sessions())
            case commands.LocalShellCommand() as command:
                return await self._run_shell(command)
            case commands.CancelCommand() as command:
                op = Interrupt(command.queue, command.agent)
                done = await (self._client.submit(op) if command.agent else self._interrupt(op))
                return payloads.OkPayload(done=done)
            case _:
                raise AssertionError

    def _subscribe(self, command: commands.SubscribeCommand) -> payloads.OkPayload:
        wanted = dict.fromkeys(command.events)
        for name in wanted:
            if name != "*" and name not in payloads.EVENT_TYPES:
                suggestion = suggest_similar(name, payloads.EVENT_TYPES)
                raise UsageError(f"Unknown event {name!r}.{suggestion}", "`ready` lists them; * stands for them.")
        every = payloads.DEFAULT_TYPES if "*" in wanted else ()
        self._types = tuple(name for name in payloads.EVENT_TYPES if name in wanted or name in every)
        return payloads.OkPayload(events=self._types)

    async def _report_status(self) -> payloads.StatusPayload:
        shot, info = await self._client.snapshot(), await self._client.get_info()
        return payloads.StatusPayload(
            seq=shot.seq,
            title=shot.title,
            cwd=info.cwd,
            model=info.model,
            running_model=info.running_model or info.model,
            mode=self._mode,
            permission_mode=info.permission_mode,
            role=info.role,
            turn=self._follower.running,
            working=shot.is_working,
            queue=shot.queue,
            agents=shot.sub_agents,
            todos=shot.todos,
            requests=tuple(self._requests.values()),
            context_used=shot.context_tokens,
            context_limit=shot.context_limit,
            usage=shot.usage,
            cost_usd=shot.cost_usd,
            events=tuple(self._types),
        )

    # --- prompts ---

    async def _send_text(self, command: commands.SendCommand, prompt_id: str) -> payloads.OkPayload:
        mode = parse_mode(command.mode) if command.mode else self._mode
        if (found := find_builtin_command(command.text)) is not None:
            ctx = CommandContext(self._client, mode)
            done, text = await run_builtin_command(ctx, *found)
            return payloads.OkPayload(done=done, text=text.rstrip() or UNSET)
        await refuse_unknown_command(self._client, command.text, "`ready` lists the commands of the project.")
        waiting = [one for one in self._requests.values() if one.kind == "permission" and command.delivery is None]
        prompt = Prompt(
            prompt_id,
            command.text,
            mode,
            command.delivery,
            attachments=tuple(map(Attachment, command.attachments)),
            output_schema=self._output_schema,
            agent=command.agent,
        )
        await self._client.submit(prompt)
        # Who writes a message does not approve what was asked before.
        answers = [Answer(one.id, one.default, _DISMISSED) for one in waiting]
        denied = tuple([answer.id for answer in answers if await self._client.submit(answer)])
        return payloads.OkPayload(prompt=prompt_id, denied=denied or UNSET)

    async def _run_shell(self, command: commands.LocalShellCommand) -> payloads.OkPayload:
        shell = os.urandom(6).hex()
        self._shells.add(shell)
        try:
            await self._client.submit(RunUserShell(shell, command.command, command.agent))
        except OdinError:
            self._shells.discard(shell)
            raise
        return payloads.OkPayload(shell=shell)

    # --- answers to requests ---

    def _find_request(self, id: str, command: str) -> Interaction:
        request = self._requests.get(id)
        if request is None:
            raise UsageError(f"No request {id!r} waits for an answer.", "`status` lists those that do.")
        if (usual := _ANSWERED_BY.get(request.kind, "")) != command:
            raise UsageError(f"{command} does not answer the request {id!r}.", f"Use {usual}.")
        return request

    async def _submit_answer(self, answer: Answer) -> payloads.OkPayload:
        if not await self._client.submit(answer):
            raise UsageError(f"The request {answer.id!r} has been answered already.")
        self._requests.pop(answer.id, None)
        return payloads.OkPayload()

    async def _confirm(self, command: commands.ConfirmCommand) -> payloads.OkPayload:
        request = self._find_request(command.request, "confirm")
        if bool(command.choice) == (command.allow is not None):
            raise UsageError("confirm needs either a choice or allow.")
        choice = request.find_choice(command.choice or ("allow_once" if command.allow else "deny"))
        if command.rule and choice.scope is None:
            scoped = ", ".join(one.key for one in request.choices if one.scope is not None)
            raise UsageError(f"The choice {choice.key} saves no rule.", f"Use {scoped}." if scoped else "")
        return await self._submit_answer(
            Answer(request.id, choice.key, command.reason, args=command.args, rule=command.rule)
        )

    async def _answer_questions(self, command: commands.QuestionCommand) -> payloads.OkPayload:
        request = self._find_request(command.request, "question")
        if command.cancel:
            return await self._submit_answer(Answer(request.id, "cancel"))
        answers = tuple((given,) if isinstance(given, str) else given for given in command.answers)
        if len(answers) != len(request.form):
            raise UsageError(f"There are {len(request.form)} questions, not {len(answers)}.", "Answer each of them.")
        for field, words in zip(request.form, answers, strict=True):
            if problem := field.find_problem(words):
                raise UsageError(f"{field.label}: {problem}")
        return await self._submit_answer(Answer(request.id, "answer", answers=answers))

    async def _decide(self, command: commands.HandoffCommand) -> payloads.OkPayload:
        request = self._find_request(command.request, "handoff")
        choice = request.find_choice(command.choice).key
        return await self._submit_answer(
            Answer(request.id, choice, command.comment, plan=command.plan, role=command.role)
        )

    # --- models ---

    async def _list_or_set_model(self, command: commands.ModelsCommand) -> payloads.AnswerPayload:
        if not command.model:
            models = await self._client.list_models(command.servers)
            return payloads.ModelsPayload(model=(await self._client.get_info()).model, models=models)
        await self._client.submit(SetModel(command.model, check=True, agent=command.agent))
        return payloads.OkPayload(model=command.model if command.agent else (await self._client.get_info()).model)
