"""One session of an editor: its events go out as updates, its prompts and what it asks are answered."""

import asyncio
import io
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from odin.acp.connection import EditorConnection
from odin.acp.options import list_options, set_option
from odin.acp.prompts import PromptContent, read_content
from odin.acp.protocol import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    AnswerChunk,
    Command,
    CommandInput,
    CommandsUpdate,
    ConfigOption,
    ContentBlock,
    OptionsUpdate,
    RpcError,
    StopReason,
    TextContent,
    Update,
)
from odin.acp.updates import SessionUpdates
from odin.core.call_events import AnswerEvent, AskEvent
from odin.core.client import AvailableModel, Client, SessionInfo, Sessions
from odin.core.errors import OdinError
from odin.core.event import (
    EffortChanged,
    Envelope,
    ModeChanged,
    ModelChanged,
    PermissionModeChanged,
    RoleChanged,
    ServersChanged,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import ExitReason, Mode
from odin.core.interaction import Interaction, make_interaction
from odin.core.op import Answer, DropPrompt, Interrupt, Prompt
from odin.core.prompt_follower import PromptFollower
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command
from odin.ui.exit import describe_ending
from odin.ui.session_follower import SESSION_ENDED, SessionFollower

_STOP_REASONS: dict[ExitReason, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "interrupted": "cancelled",
    "aborted": "cancelled",
    "max_turns": "max_turn_requests",
    "error_max_budget_usd": "max_turn_requests",
    "loop_detected": "max_turn_requests",
    "error_max_structured_output_retries": "end_turn",
}
_AUTH_ERRORS = ("AuthFailed", "NoUsableKeys", "NeedsModel")
_OPTION_EVENTS = (PermissionModeChanged, RoleChanged, ModelChanged, EffortChanged, ModeChanged)
_DRAIN_EVERY = 64
"""Updates between two waits for the editor, so that a long conversation is not held twice."""

HIDDEN_COMMANDS = frozenset(
    (
        *("new", "resume", "fork", "execute", "sessions", "delete", "exit"),  # an editor has lists of its own
        *("transcript", "mouse", "vim", "editor", "setup", "copy", "theme", "keys", "focus"),  # for a screen
        "help",  # the editor shows the commands
    )
)


class EditorAbilities(Struct, frozen=True):
    """What the editor can show."""

    forms: bool = False
    notices: bool = False


class EditorSession(Struct, frozen=True):
    """A client of a session, and how to leave it. `get_sessions` is for slash commands."""

    client: Client
    home: str
    get_sessions: Callable[[], Sessions]
    close: Callable[[], Awaitable[object]]


PromptResult = StopReason | RpcError


class _Pending(Struct):
    """A prompt of the editor that is not answered yet."""

    answer: asyncio.Future[StopReason]
    is_cancelled: bool = False


class AcpSession:
    """A session that the editor has open. `on_end` is called when it was closed elsewhere."""

    def __init__(
        self,
        opened: EditorSession,
        info: SessionInfo,
        connection: EditorConnection,
        abilities: EditorAbilities,
        on_end: Callable[[], object],
    ) -> None:
        self.id = info.session
        self.mode: Mode = info.mode
        self._opened = opened
        self._client = opened.client
        self._info = info
        self._connection = connection
        self._on_end = on_end
        self._updates = SessionUpdates(info, opened.home, has_notices=abilities.notices)
        self._has_forms = abilities.forms
        self._models: tuple[AvailableModel, ...] = ()
        self._options: tuple[ConfigOption, ...] = ()
        self._listed: CommandsUpdate | None = None
        self._has_news_of: set[str] = set()
        self._pending: dict[str, _Pending] = {}
        self._prompts = PromptFollower()
        self._turn_waiters: list[asyncio.Future[StopReason]] = []
        self._questions: list[Interaction] = []
        self._asked: dict[str, asyncio.Task[Any]] = {}
        self._ended: list[tuple[asyncio.Future[StopReason], PromptResult]] = []
        self._is_replayed = True
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._flusher: asyncio.Task[Any] | None = None
        self._follower = SessionFollower(self._handle_event, self._handle_end, self._fail, self._handle_past)

    # --- its life ---

    async def start(self, *, replay: bool) -> None:
        """Follow the session. With `replay` the editor has been told the whole conversation when this returns."""
        shot = await self._client.snapshot()
        self._is_replayed = replay
        self._questions += shot.interactions
        self._follower.start(self._client, shot.seq, is_working=shot.is_working)
        if shot.seq >= 0:
            await self._caught_up.wait()
        await self._refresh_options()
        if replay:
            await self._flush()

    def go_live(self) -> None:
        """Send updates from now on: the editor knows the session. What its user should know first comes first."""
        self._has_news_of.add("commands")
        self._listed = None
        if self._flusher is None:
            for text in filter(None, (*self._info.warnings, self._info.notice)):
                self._updates.add_notice(text, "warn")
            self._flusher = self._connection.spawn(self._flush_forever())
            self._connection.spawn(self._list_models())
        self._wake.set()

    async def replay(self) -> None:
        """Tell the editor the whole conversation once more."""
        async with self._flushing:
            self._updates.restart()
        await self._flush()

    def warn(self, text: str) -> None:
        self._updates.add_notice(text, "warn")

    async def close(self) -> None:
        """Stop what works for this editor and leave the session, which ends with its last client."""
        with suppress(OdinError):
            await self.cancel()
        self._stop("cancelled")
        await self._opened.close()

    def _stop(self, result: PromptResult) -> None:
        self._follower.stop()
        if self._flusher is not None:
            self._flusher.cancel()
        for task in self._asked.values():
            task.cancel()
        waiting = [*(one.answer for one in self._pending.values()), *self._turn_waiters]
        self._pending.clear()
        self._turn_waiters.clear()
        ended, self._ended = self._ended, []
        for answer, known in ended:
            _settle(answer, known)
        for answer in waiting:
            _settle(answer, result)

    # --- events ---

    def _handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        self._updates.apply(envelope, live=live)
        if not live:
            return
        if isinstance(event, AskEvent):
            self._questions.append(make_interaction(event, envelope.agent))
        elif isinstance(event, AnswerEvent):
            self._questions = [one for one in self._questions if one.id != event.ask_id]
            if (task := self._asked.pop(event.ask_id, None)) is not None:
                task.cancel()
        elif isinstance(event, ServersChanged):
            self._has_news_of.add("commands")
        elif not envelope.agent:
            if isinstance(event, ModeChanged):
                self.mode = event.mode
            if isinstance(event, _OPTION_EVENTS):
                self._has_news_of.add("options")
        self._follow_prompts(envelope)
        self._wake.set()

    def _handle_past(self) -> None:
        if not self._is_replayed:
            for _ in self._updates.take():
                pass  # the editor knows it
        self._caught_up.set()

    def _handle_end(self, client: Client, reason: str, last: int) -> None:
        self._caught_up.set()
        self._stop(RpcError(INTERNAL_ERROR, reason or SESSION_ENDED, "Load the session again."))
        self._on_end()

    def _fail(self, error: BaseException) -> None:
        self._handle_end(self._client, "Odin failed to follow the session.", -1)
        raise error

    def _follow_prompts(self, envelope: Envelope) -> None:
        event = envelope.event
        for prompt in self._prompts.apply(envelope):
            if prompt.ended is not None:
                self._end_prompt(prompt.id, _read_ending(prompt.ended))
            elif prompt.loss:
                self._end_prompt(prompt.id, "cancelled")
            elif isinstance(event, TurnStarted) and self._pending[prompt.id].is_cancelled:
                self._connection.spawn(self._client.submit(Interrupt()))
        if isinstance(event, TurnEnded) and not envelope.agent:
            waiters, self._turn_waiters = self._turn_waiters, []
            self._ended.extend((waiter, _read_ending(event)) for waiter in waiters)

    def _end_prompt(self, id: str, result: PromptResult) -> None:
        """Answer a prompt once the editor has been told everything before its end."""
        self._prompts.forget(id)
        pending = self._pending.pop(id)
        if pending.is_cancelled:
            result = "cancelled"
        self._ended.append((pending.answer, result))

    # --- updates ---

    def _send(self, update: Update) -> None:
        self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    async def _flush_forever(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._flush()
        except Exception:
            self._handle_end(self._client, "Odin failed to tell what happens in the session.", -1)
            raise

    async def _flush(self) -> None:
        """Send what has changed, then ask and answer what belongs after it; wait while the editor is slow."""
        async with self._flushing:
            ended, self._ended = self._ended, []
            told = {asked.id for asked in self._questions}
            for number, update in enumerate(self._updates.take(), 1):
                self._send(update)
                if number % _DRAIN_EVERY == 0:
                    await self._connection.drain()  # meanwhile more may happen, which the next flush tells
            for asked in self._questions:
                if asked.id in told and asked.id not in self._asked:
                    self._asked[asked.id] = self._connection.spawn(self._ask(asked))
            self._questions = [asked for asked in self._questions if asked.id not in told]
            for answer, result in ended:
                _settle(answer, result)
            news, self._has_news_of = self._has_news_of, set()
            with suppress(OdinError):  # the session is being closed
                if "options" in news and await self._refresh_options():
                    self._send(OptionsUpdate(config_options=self._options))
                if "commands" in news:
                    await self._list_commands()
            await self._connection.drain()

    async def _list_commands(self) -> None:
        custom = await self._client.list_commands()
        commands = [
            *((one.name.replace("/", ":"), one.description, one.hint) for one in custom),
            *((one.name, one.help, one.hint) for one in SLASH_COMMANDS if one.name not in HIDDEN_COMMANDS),
        ]
        update = CommandsUpdate(
            available_commands=tuple(
                Command(name=name, description=about or name, input=CommandInput(hint=hint))
                if hint
                else Command(name=name, description=about or name)
                for name, about, hint in commands
            )
        )
        if update != self._listed:
            self._listed = update
            self._send(update)

    # --- config options ---

    async def _list_models(self) -> None:
        """Add the models of servers to the options, once these have answered."""
        with suppress(OdinError):
            self._models = await self._client.list_models("configured")
            self._has_news_of.add("options")
            self._wake.set()

    async def list_options(self) -> tuple[ConfigOption, ...]:
        await self._refresh_options()
        return self._options

    async def _refresh_options(self) -> bool:
        """Look at the settings; True if they have changed."""
        info, agents = await self._client.get_info(), await self._client.list_agents()
        models = self._models or await self._client.list_models()
        before, self._options = self._options, list_options(info, self.mode, agents, models)
        return before != self._options

    async def set_option(self, id: str, value: str) -> tuple[ConfigOption, ...]:
        self.mode = await set_option(self._client, id, value, self.mode)
        return await self.list_options()

    # --- prompts ---

    async def prompt(self, blocks: Sequence[ContentBlock]) -> StopReason:
        """Send a prompt or run a slash command, and return why its turn has ended. Raise RpcError if that failed."""
        content = read_content(blocks)
        if not content.text.strip() and not content.attachments:
            raise RpcError(INVALID_PARAMS, "The prompt is empty.", "Write what you want done.")
        if not content.typed.startswith("/"):
            return await self._send_prompt(content, self.mode)
        from odin.ui.plain.commands import MODES
        from odin.ui.slash_commands.actions import refuse_unknown_command, resolve_synonym

        word, *words = content.typed.split(None, 1)
        command = find_slash_command(word)
        if command is None or content.text != content.typed:
            await refuse_unknown_command(self._client, content.typed, "The editor lists the commands.")
            return await self._send_prompt(content, self.mode)
        name, rest = resolve_synonym(command.name, "".join(words))
        if name in MODES:
            self.mode = MODES[name]
            self._has_news_of.add("options")
            if rest:
                return await self._send_prompt(PromptContent(rest, rest, content.attachments), self.mode)
            await self._tell(f"Mode: {name}.")
            return "end_turn"
        if name == "use":
            from odin.ui.slash_commands.extensions import make_skill_prompt

            text = await make_skill_prompt(self._client, rest)
            return await self._send_prompt(PromptContent(text, text, content.attachments), self.mode)
        return await self._run_command(name, rest)

    async def _send_prompt(self, content: PromptContent, mode: Mode) -> StopReason:
        name = os.urandom(6).hex()
        pending = self._pending[name] = _Pending(asyncio.get_running_loop().create_future())
        self._prompts.follow(name)
        self._updates.own_prompts.add(name)
        # Custom commands are expanded only without a text to show instead.
        is_plain = content.text == content.typed or content.typed.startswith("/")
        shown = "" if is_plain else content.typed
        try:
            await self._client.submit(
                Prompt(name, content.text, mode, attachments=content.attachments, display_text=shown)
            )
        except OdinError:
            self._pending.pop(name, None)
            self._prompts.forget(name)
            if pending.is_cancelled:
                return "cancelled"
            raise
        if pending.is_cancelled:
            await self._withdraw(name)
        return await pending.answer

    async def cancel(self) -> None:
        """Interrupt the work, and take back the editor's prompts that have not started."""
        for name, pending in list(self._pending.items()):
            pending.is_cancelled = True
            await self._client.submit(DropPrompt(name))
        if not await self._client.submit(Interrupt()):
            waiters, self._turn_waiters = self._turn_waiters, []
            self._ended.extend((waiter, "cancelled") for waiter in waiters)
            self._wake.set()

    async def _withdraw(self, id: str) -> None:
        if id in self._pending and not await self._client.submit(DropPrompt(id)):
            await self._client.submit(Interrupt())

    # --- slash commands ---

    async def _run_command(self, name: str, rest: str) -> StopReason:
        """Run a command of Odin and tell what it says; one that starts a turn is over with that."""
        from odin.ui.plain.commands import PlainCommands

        out, waiter = io.StringIO(), asyncio.get_running_loop().create_future()

        def expect_turn() -> None:
            self._turn_waiters.append(waiter)

        commands = PlainCommands(
            self._opened.get_sessions(), await self._client.get_info(), self.mode, out, expect_turn
        )
        if name in HIDDEN_COMMANDS or not commands.has_command(name):
            raise RpcError(INTERNAL_ERROR, f"/{name} does not work in an editor.", "Use `odin` in a terminal for it.")
        try:
            await commands.run(name, rest)
        except BaseException:
            if waiter in self._turn_waiters:
                self._turn_waiters.remove(waiter)
            raise
        if text := out.getvalue().strip("\n"):
            await self._tell(f"```\n{text}\n```" if "\n" in text else text)
        self._has_news_of.add("options")
        self._wake.set()
        if waiter in self._turn_waiters or waiter.done():
            return await waiter
        return "end_turn"

    async def _tell(self, text: str) -> None:
        await self._flush()
        self._send(AnswerChunk(content=TextContent(text=text), message_id=os.urandom(6).hex()))

    # --- what the user is asked ---

    async def _ask(self, asked: Interaction) -> None:
        from odin.acp.questions import QuestionAsker

        tell = self._updates.add_notice
        asker = QuestionAsker(self._connection.ask, self.id, self._info.cwd, tell, has_forms=self._has_forms)
        try:
            answer = await asker.answer(asked)
            try:
                await self._client.submit(answer)
            except OdinError as error:  # such as arguments that are not valid
                self._updates.add_notice(error.describe(), "warn")
                await self._client.submit(Answer(asked.id, asked.default, error.describe()))
        finally:
            self._asked.pop(asked.id, None)
            self._wake.set()


def _read_ending(event: TurnEnded) -> PromptResult:
    """Return how a prompt is answered when its turn has ended like this."""
    if event.reason != "error":
        return _STOP_REASONS.get(event.reason, "end_turn")
    code = AUTH_REQUIRED if event.error_kind in _AUTH_ERRORS else INTERNAL_ERROR
    return RpcError(code, describe_ending(event))


def _settle(answer: "asyncio.Future[StopReason]", result: PromptResult) -> None:
    if answer.done():
        return
    if isinstance(result, RpcError):
        answer.set_exception(result)
    else:
        answer.set_result(result)
