"""The hooks of one agent: their messages to user and model (`HookInbox`), and the hook points of a turn (`TurnHooks`).

The hook points of tool calls are fired where calls pass them: in authorization, approvals, execution and pipeline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from odin.core.errors import OdinError, PromptBlocked, TurnHalted
from odin.core.event import NoteAdded, TurnEnded, Warned
from odin.core.event_values import Mode
from odin.core.message import ReplyMessage
from odin.core.policy import NO_HOOK_EFFECT, HookCall, HookEffect, HookPoint, Hooks, NoHooks
from odin.engine.recorder import Recorder

HALTED_REASON = "A hook ended the turn."


class HookInbox:
    """Fires the hooks of one agent and collects their messages.

    A notice for the user is published at once. Context for the model waits here while calls are open, because nothing
    may come between a call and its result. `halt_reason` is why a hook ended the turn, or "".
    """

    def __init__(self, recorder: Recorder, hooks: Hooks | None = None) -> None:
        self.halt_reason = ""
        self.recorder = recorder
        self._hooks = hooks or NoHooks()
        self._notes: list[str] = []

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return self._hooks.has_hook_for(point, tool)

    async def fire(self, call: HookCall) -> HookEffect:
        effect = await self._hooks.fire(call)
        # Context that belongs to a prompt the hook blocked is dropped.
        if effect.context and not (call.point == "UserPromptSubmit" and effect.decision == "deny"):
            self._notes.append(effect.context)
        if effect.notice:
            self.recorder.emit(Warned(effect.notice), call.agent)
        if effect.halt:
            self.halt_reason = effect.message or HALTED_REASON
        return effect

    def deliver_notes(self, agent: str) -> None:
        """Add the collected context to the conversation. No call may be open."""
        if self._notes:
            notes, self._notes = "\n\n".join(self._notes), []
            self.recorder.emit(NoteAdded(notes), agent)

    def take_halt(self) -> str:
        halted, self.halt_reason = self.halt_reason, ""
        return halted


MAX_CONTINUES = 8
"""How often stop hooks may continue one turn, so that a hook cannot keep it running forever."""

CONTINUE_NOTE = "A stop hook wants you to continue."


class HookTasks:
    """Hooks that run in the background until the session ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_all(self) -> None:
        """Wait for all of them. Every hook has a timeout, so this ends."""
        if self._tasks:
            await asyncio.wait(self._tasks)


class TurnHooks:
    """Fires the hook points of an agent's turns: prompt, requests, replies, end, idle.

    `source` is how the session began. Session and prompt hooks are not fired for sub-agents, whose prompts the user
    did not write. `preparations` are awaited before each request of the agent.
    """

    def __init__(
        self,
        inbox: HookInbox,
        tasks: HookTasks,
        agent: str = "",
        *,
        source: str = "startup",
        preparations: Sequence[Callable[[str], Awaitable[None]]] = (),
    ) -> None:
        self._preparations = preparations
        self.inbox = inbox
        self._tasks = tasks
        self._agent = agent
        self._source = source
        self._has_started = False

    async def fire_session_start(self, mode: Mode) -> None:
        """Fire `session_start` before the first turn of a session."""
        if not self._agent and not self._has_started:
            self._has_started = True
            await self._fire_point("SessionStart", mode, reason=self._source)

    @property
    def has_prompt_hooks(self) -> bool:
        return not self._agent and self.inbox.has_hook_for("UserPromptSubmit")

    async def get_prompt_refusal(self, text: str, mode: Mode) -> str:
        """Fire `prompt_submit` for a prompt to be injected into the running turn; return why it is blocked, or ""."""
        try:
            await self.fire_prompt_submit(text, mode)
        except PromptBlocked as blocked:
            return str(blocked)
        return ""

    async def fire_prompt_submit(self, text: str, mode: Mode) -> None:
        """Fire `prompt_submit`. Raise PromptBlocked if a hook denies the prompt."""
        if self._agent:
            return
        effect = await self._fire_point("UserPromptSubmit", mode, text=text)
        if effect.decision == "deny":
            raise PromptBlocked(effect.message)
        self.raise_if_halted()

    async def fire_before_request(self, mode: Mode) -> None:
        """Fire `before_llm_call`, then add what hooks have said since the last request to the conversation."""
        for prepare in self._preparations:
            await prepare(self._agent)
        await self._fire_point("on_before_llm_call", mode)
        self.raise_if_halted()
        self.inbox.deliver_notes(self._agent)

    async def fire_after_reply(self, message: ReplyMessage, mode: Mode) -> None:
        names = tuple(call.name for call in message.calls)
        await self._fire_point("on_after_llm_call", mode, text=message.text, tools=names)
        self.raise_if_halted()

    def raise_if_halted(self) -> None:
        """Raise TurnHalted if a hook ended the turn."""
        halted = self.inbox.take_halt()
        if halted:
            raise TurnHalted(halted)

    async def should_continue(self, text: str, mode: Mode, times: int) -> bool:
        """Fire `stop`: True if a hook continues the turn after the answer. `times`: how often that has happened."""
        point: HookPoint = "SubagentStop" if self._agent else "Stop"
        effect = await self._fire_point(point, mode, text=text, again=times > 0)
        if effect.halt:
            self.inbox.take_halt()
            return False
        if not effect.continue_turn:
            return False
        if times >= MAX_CONTINUES:
            why = f"Stop hooks continued this turn {times} times. It ends now."
            self.inbox.recorder.emit(Warned(why), self._agent)
            return False
        self.inbox.recorder.emit(NoteAdded(effect.message or CONTINUE_NOTE), self._agent)
        return True

    # --- points whose decision is ignored ---

    def report_error(self, ended: TurnEnded, mode: Mode) -> None:
        if ended.reason == "error" and not ended.is_blocked and ended.error_kind != TurnHalted.__name__:
            self._fire_in_background(
                HookCall("on_agent_error", self._agent, mode, text=ended.error, reason=ended.error_kind)
            )

    def report_idle(self, ended: TurnEnded) -> None:
        """Fire `idle`: the agent has answered everything."""
        self._fire_in_background(HookCall("on_idle", self._agent, text=ended.text, reason=ended.reason))

    async def end_session(self) -> None:
        """Fire `session_end` after all background hooks, if `session_start` was fired."""
        await self._tasks.wait_all()
        if self._has_started and self.inbox.has_hook_for("SessionEnd"):
            await self._fire_quietly(HookCall("SessionEnd", self._agent, reason="exit"))

    def _fire_in_background(self, call: HookCall) -> None:
        if self.inbox.has_hook_for(call.point):
            self._tasks.add(self._fire_quietly(call))

    async def _fire_quietly(self, call: HookCall) -> None:
        with suppress(OdinError):  # the turn that needs the log reports that it cannot be written
            await self.inbox.fire(call)
            self.inbox.take_halt()

    async def _fire_point(
        self,
        point: HookPoint,
        mode: Mode,
        *,
        text: str = "",
        reason: str = "",
        again: bool = False,
        tools: tuple[str, ...] = (),
    ) -> HookEffect:
        if not self.inbox.has_hook_for(point):
            return NO_HOOK_EFFECT
        return await self.inbox.fire(
            HookCall(point, self._agent, mode, text=text, reason=reason, stop_hook_active=again, tools=tools)
        )
