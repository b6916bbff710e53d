"""A session that serves a chat: it is given prompts, and what comes of them is stored with the chat.

The answers are read from the session's log, from the event on up to which they are stored: what was not stored when the
gateway was killed is found there again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from odin.app.workspace import make_workspace
from odin.config import Config, Options
from odin.config.gateway_settings import GatewaySettings
from odin.core.call_events import (
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
)
from odin.core.client import close_events
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import AgentShutdown, OdinError
from odin.core.event import Envelope, PromptInjected, TurnEnded, TurnStarted
from odin.core.format import format_seconds
from odin.core.interaction import make_interaction
from odin.core.op import Answer, ChangePrompt, Prompt, SetBudget
from odin.core.prompt_follower import PromptFollower
from odin.core.provider import NoCompactor
from odin.core.timeline import get_source
from odin.engine.client import LocalClient
from odin.gateway.channel import Abilities, Channel, MessageOptions
from odin.gateway.cron_tool import CronTool, JobMaker
from odin.gateway.gateway_log import GatewayLog
from odin.gateway.jobs import HEARTBEAT
from odin.gateway.message_tool import MessageTool
from odin.gateway.outbox import Outbox
from odin.gateway.parts import split_text
from odin.gateway.progress import FIRST_MESSAGE_S, ProgressMessage
from odin.gateway.prompt_text import RESUMED, describe_place
from odin.gateway.requests import ChatRequest
from odin.gateway.store import Chat, GatewayStore, NewPart, StoreThread
from odin.host.manager import SessionManager
from odin.ui.permission_text import describe_answer_elsewhere

_SELF_STARTED = ("mail", "hook", "schedule")
_CLOSE_S = 10.0


class ChatServices(Struct, frozen=True):
    """What all chats share. `options` are those of their sessions, `workspace` the folder of chats without another."""

    manager: SessionManager
    options: Options
    settings: GatewaySettings
    environment: ExecutionEnvironment
    workspace: str
    db: StoreThread
    outbox: Outbox
    channels: Mapping[str, Channel]
    log: GatewayLog
    progress_s: float = FIRST_MESSAGE_S

    def make_options(self, chat: Chat) -> Options:
        """Return the options of the chat's session. Only one that its owner has bound can ask.

        A session that exists keeps the model and the role that it has.
        """
        is_new, options, beat = not chat.session, self.options, ""
        if chat.channel == HEARTBEAT:
            beat = self.settings.heartbeat.model
            options = replace(options, tools=("message", *self.settings.heartbeat.tools), strict_mcp_config=True)
        return replace(
            options,
            cwd=chat.folder or self.workspace,
            role=chat.role if is_new else "",
            model=(beat or self.options.model or self.settings.model) if is_new else "",
            can_ask=bool(chat.owner),
            restrict_to_workspace=None if chat.owner else True,
            permission_mode="default" if chat.owner else "dontAsk",
            usual_max_turns=self.settings.max_turns,
            append_system_prompt=describe_place(chat, markdown=self.channels[chat.channel].abilities.markdown),
        )

    def make_parts(self, chat: Chat, key: str, text: str, answers: str = "") -> list[NewPart]:
        """Return a text as parts that the channel takes. The same text has the same `key`, so that it is sent once."""
        channel = self.channels.get(chat.channel)
        limit = channel.abilities.max_length if channel is not None else Abilities().max_length
        texts = split_text(text, limit)
        return [NewPart(f"{key}.{at}", chat.channel, chat.chat, part, answers) for at, part in enumerate(texts)]

    def get_daily_budget(self, channel: str) -> float:
        """Return what a chat of this channel may cost in a day; 0 means no limit."""
        is_heartbeat = channel == HEARTBEAT
        return (self.settings.heartbeat if is_heartbeat else self.settings).max_budget_usd_per_day

    async def say(self, chat: Chat, key: str, text: str, answers: str = "") -> None:
        await self.db.run(GatewayStore.add_parts, self.make_parts(chat, key, text, answers))
        self.outbox.wake()


class ChatSession:
    """An open session and what is read from it. `chat` says which, and up to where its answers are stored."""

    def __init__(self, services: ChatServices, chat: Chat, client: LocalClient, config: Config) -> None:
        self.chat = chat
        self.client = client
        self._services = services
        self._config = config
        self._opened_seq = client.session.take_snapshot().seq
        self._channel = services.channels[chat.channel]
        self._turn = ""
        self._self_started = ""
        self._maker = JobMaker()
        self._has_sent = False
        self._progress: ProgressMessage | None = None
        self._waiting: dict[str, asyncio.Event] = {}
        self._prompts = PromptFollower()
        self._requests: dict[str, ChatRequest] = {}
        self._shown_key = ""
        self._answered_here = set[str]()
        self._budget = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._caught_up = asyncio.Event()
        if chat.cursor >= self._opened_seq:
            self._caught_up.set()
        events = client.stream_events(after=chat.cursor)
        self._reader = asyncio.create_task(self._read(events))

    @classmethod
    async def open(
        cls,
        services: ChatServices,
        chat: Chat,
        *,
        options: MessageOptions = MessageOptions(),  # noqa: B008
        new_id: str = "",
        forks: bool = False,
    ) -> "ChatSession":
        """Open the session of a chat, or a new one, which then has the id `new_id`. With `forks` it is a copy."""
        made = services.make_options(chat)
        workspace = make_workspace(made)
        if chat.session and workspace.store.find_log(chat.session) is None:
            chat = replace(chat, session="", cursor=-1, counted_usd=0.0)
            made = services.make_options(chat)
        forks = forks and bool(chat.session)
        made = replace(made, resume=chat.session, session_id="" if chat.session else new_id, fork=forks)
        tool = MessageTool(services.db, services.outbox, services.channels)
        compactor = None if options.summarize else NoCompactor()
        cron = CronTool(services.db, services.channels)
        tools = [tool] if chat.channel == HEARTBEAT else [tool, cron]
        client = await services.manager.open(made, tools=tools, compactor=compactor)
        shot = client.session.take_snapshot()
        if forks:
            chat = replace(chat, cursor=shot.seq, counted_usd=shot.cost_usd)
        session = cls(services, replace(chat, session=client.session.id), client, workspace.config)
        tool.place = cron.place = session.get_place
        cron.maker = session.get_maker
        tool.answers = session.get_answered
        tool.on_sent = session.note_message
        return session

    def get_place(self) -> Chat:
        return self.chat

    def get_maker(self) -> JobMaker:
        return self._maker

    def get_answered(self) -> str:
        """Return the key of the message that the running turn answers, or ""."""
        key = _get_key(self._turn)
        return key if key in self._waiting else ""

    def note_message(self) -> None:
        """The model has sent a message to this chat in this turn."""
        self._has_sent = True

    # --- prompts ---

    @property
    def running(self) -> str:
        """The key of the message that is being answered, or ""."""
        return next(iter(self._waiting), "")

    @property
    def is_over(self) -> bool:
        return self._reader.done()

    async def answer(self, prompt: Prompt) -> None:
        """Give the session a prompt, unless its log has it, and return when the answer is stored.

        Raise OdinError if there is none, because of what another client does with the prompt.
        """
        await self._wait_for(self._caught_up)
        if (steering := self._waiting.get(prompt.id)) is not None:
            await self._wait_for(steering)
        if not await self._services.db.run(GatewayStore.is_open, prompt.id):
            return
        shot = await self.client.snapshot()
        limit = self._services.get_daily_budget(self.chat.channel)
        if limit:
            spent = await self._services.db.run(GatewayStore.get_cost_today, self.chat.channel, self.chat.chat)
            budget = round(shot.cost_usd + max(limit - spent, 0.0001), 4)
            if budget != self._budget:
                self._budget = budget
                await self.client.submit(SetBudget(budget))
        tried = sum(_get_key(turn.id) == prompt.id for turn in shot.messages)
        if any(item.id == prompt.id for item in shot.queue):
            op = ChangePrompt(prompt.id, delivery="queue")
        elif tried:
            op = replace(prompt, id=f"{prompt.id}.{tried}", text=RESUMED, display_text="", attachments=())
        else:
            op = prompt
        if loss := await self._submit(prompt.id, op):
            raise OdinError(loss)

    async def steer(self, prompt: Prompt) -> None:
        """Send a prompt into the running turn, and return when its answer is stored, or there is none."""
        await self._submit(prompt.id, replace(prompt, delivery="steer"))

    async def _submit(self, key: str, op: Prompt | ChangePrompt) -> str:
        """Submit the prompt for a message. Return when its answer is stored, or why there is none."""
        done, followed = asyncio.Event(), self._prompts.follow(op.id)
        self._waiting[key] = done
        try:
            await self.client.submit(op)
            await self._wait_for(done)
        finally:
            self._waiting.pop(key, None)
            self._prompts.forget(op.id)
        return followed.loss

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((waiting, self._reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not event.is_set():
            if self._reader.done() and (error := self._reader.exception()) is not None:
                raise error
            raise AgentShutdown

    # --- events ---

    async def _read(self, events: Any) -> None:
        try:
            async for envelope in events:
                await self._handle(envelope)
                if envelope.seq >= self._opened_seq:
                    self._caught_up.set()
        finally:
            close_events(events)

    async def _handle(self, envelope: Envelope) -> None:
        event, is_live = envelope.event, self._caught_up.is_set()
        if self._progress is not None:
            self._progress.handle_event(event)
        for prompt in self._prompts.apply(envelope) if is_live else ():
            if prompt.loss:
                self._waiting[_get_key(prompt.id)].set()
        match event:
            case TurnStarted() if not envelope.agent:
                self._turn, self._has_sent = event.id, False
                self._maker = _find_maker(event)
                self._self_started = event.id if get_source(event) in _SELF_STARTED else ""
                if is_live and (_get_key(event.id) in self._waiting or self._self_started):
                    name = f"{self.chat.session}.{event.id}"
                    self._progress = ProgressMessage(
                        self._channel, self.chat.chat, name, first_s=self._services.progress_s
                    )
            case PromptInjected() if not envelope.agent and event.turn:
                if _find_maker(event) != self._maker:  # several have a part in the turn now
                    self._maker = JobMaker()
                await self._finish(envelope, (event.id,), "")
            case TurnEnded() if not envelope.agent and event.reason != "aborted":
                await self._end_turn(envelope, event)
            case PermissionAsked() | QuestionsAsked() | PlanAsked() if is_live and self.chat.owner:
                interaction = make_interaction(event, envelope.agent)
                folder = self._services.make_options(self.chat).cwd
                in_group, has_buttons = self.chat.is_group, self._channel.abilities.buttons
                self._requests[interaction.id] = ChatRequest(
                    interaction, self.chat.session, folder, in_group=in_group, has_buttons=has_buttons
                )
                self._timers[interaction.id] = asyncio.get_running_loop().call_later(
                    self._services.settings.confirm_timeout_s, self._start, self._time_out, interaction.id
                )
                await self._show_next()
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                request = self._requests.pop(event.ask_id, None)
                if request is not None:
                    self._timers.pop(event.ask_id).cancel()
                    self._services.log.write("decided", self.chat.channel, self.chat.chat, event.ask_id, event.by)
                    told = "" if event.ask_id in self._answered_here else describe_answer_elsewhere(event)
                    if told and request.is_shown:
                        await self._services.say(self.chat, f"{self.chat.session}.{event.ask_id}.elsewhere", told)
                    await self._show_next()
            case _:
                pass

    async def _end_turn(self, envelope: Envelope, ended: TurnEnded) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            await progress.close()
        key = _get_key(ended.id)
        stored = await self._services.db.run(GatewayStore.read_message, key)
        text, error = describe_end(ended)
        if error:
            text, error = self._services.log.redact(text), self._services.log.redact(error)
        options = stored.message.options if stored is not None else MessageOptions()
        if text == self._config.background_response or (stored is None and ended.id != self._self_started):
            text = ""  # there is nothing to say, or somebody else has asked, in a terminal
        elif text == self._config.default_response:
            text = options.default_response or text
        if not options.send or (self._has_sent and ended.reason == "end_turn"):
            text = ""
        self._services.log.write("answered", self.chat.channel, self.chat.chat, key, ended.reason)
        await self._finish(envelope, (key,) if stored is not None else (), text, error)

    async def _finish(self, envelope: Envelope, done: tuple[str, ...], text: str, error: str = "") -> None:
        """Store what a prompt came to, and let those go on who wait for it."""
        spent = self.client.session.take_snapshot().cost_usd
        usd = max(0.0, spent - self.chat.counted_usd)
        self.chat = replace(self.chat, cursor=envelope.seq, counted_usd=max(spent, self.chat.counted_usd))
        turn = getattr(envelope.event, "id", "")
        answers = done[0] if done else ""
        parts = self._services.make_parts(self.chat, f"{self.chat.session}.{turn}", text, answers)
        await self._services.db.run(GatewayStore.finish, self.chat, parts, done=done, error=error, usd=usd)
        self._services.outbox.wake()
        for key in done:
            if key in self._waiting:
                self._waiting[key].set()

    # --- requests ---

    def find_request(self, ask: str = "") -> ChatRequest | None:
        """Return the request with this id; without one, that which is shown in the chat."""
        if ask:
            return self._requests.get(ask)
        return next((request for request in self._requests.values() if request.is_shown), None)

    def note_sent(self, key: str) -> None:
        """A part was sent. Typed words answer a request only from then on."""
        if key == self._shown_key:
            for request in self._requests.values():
                request.is_shown = self._get_request_key(request) == key

    def _get_request_key(self, request: ChatRequest) -> str:
        return f"{self.chat.session}.{request.key}"

    async def _show_next(self) -> None:
        """Show the oldest request. The others follow one by one."""
        request = next(iter(self._requests.values()), None)
        if request is None or self._get_request_key(request) == self._shown_key:
            return
        self._shown_key = key = self._get_request_key(request)
        request.is_shown = False
        text, buttons = request.describe()
        *parts, last = self._services.make_parts(self.chat, f"{key}.text", text)
        parts.append(replace(last, key=key, buttons=buttons))
        await self._services.db.run(GatewayStore.add_parts, parts)
        self._services.outbox.wake()
        self._services.log.write("asked", self.chat.channel, self.chat.chat, request.interaction.id)

    async def give_answer(self, answer: Answer | None, who: str) -> bool:
        """Give an owner's answer to the session, or go on to the next question. False if it came too late."""
        if answer is None:
            await self._show_next()
            return True
        self._answered_here.add(answer.id)
        return await self.client.submit(replace(answer, client=who))

    async def _time_out(self, id: str) -> None:
        request = self._requests.get(id)
        if request is not None:
            limit = format_seconds(round(self._services.settings.confirm_timeout_s))
            text = f"Nobody answered within {limit}."
            await self.client.submit(Answer(id, request.interaction.default, text, by="timeout"))
            if request.is_shown:
                await self._services.say(self.chat, f"{self.chat.session}.{id}.late", f"{text} The answer was no.")

    def _start(self, action: Callable[..., Any], *args: Any) -> None:
        task = asyncio.create_task(action(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- end ---

    async def close(self) -> None:
        self._reader.cancel()
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._progress is not None:
            await self._progress.close()
        with suppress(OdinError):
            await self.client.close(_CLOSE_S)


def _find_maker(event: TurnStarted | PromptInjected) -> JobMaker:
    """Return who has asked for a turn."""
    given = event.provenance
    if given is None or event.source not in ("user", "channel"):
        return JobMaker()
    return JobMaker("owner" if given.is_owner else "sender", given.sender, is_person=True)


def _get_key(turn: str) -> str:
    """Return the key of the message that a turn answers: further attempts have a number after it."""
    return turn.partition(".")[0]


def describe_end(ended: TurnEnded) -> tuple[str, str]:
    """Return what to send at the end of a turn, and the error if its message was not answered."""
    if ended.reason == "end_turn":
        return ended.text, ""
    if ended.reason == "interrupted":
        return "Stopped.", ""
    why = f"{ended.error} {ended.hint}".strip()
    if ended.reason == "error" or ended.reason.startswith("error_"):
        return f"Error processing message: {why}", why
    return "\n\n".join(filter(None, (ended.text, why))), ""
