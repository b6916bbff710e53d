"""The hooks as one agent meets them in its turns: at the prompt, around each request, at the end and when it rests."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from odin.core.errors import OdinError, PromptBlocked, TurnHalted
from odin.core.event import Mode, Noted, TurnEnded, Warned
from odin.core.hook import SILENT, HookCall, HookVerdict, Point
from odin.core.message import AssistantMessage
from odin.engine.call.hooking import Desk

MAX_KEPT_GOING = 8
"""How often stop hooks may keep one turn going. A hook that never has enough must not run for ever."""

GO_ON = "A stop hook wants you to go on."

_OUR_OWN_ENDS = (PromptBlocked.__name__, TurnHalted.__name__)


class Watchers:
    """Hooks that are told something and nobody waits for, before the session ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Every hook has its own time, so this ends."""
        if self._tasks:
            await asyncio.wait(self._tasks)


class TurnHooks:
    """`source` says how the session of the main agent began. A sub-agent's prompts are no person's."""

    def __init__(self, desk: Desk, watchers: Watchers, agent: str = "", *, source: str = "startup") -> None:
        self.desk = desk
        self._watchers = watchers
        self._agent = agent
        self._source = source
        self._begun = False

    async def begin(self, mode: Mode) -> None:
        """`session_start`, before the first turn of a session."""
        if not self._agent and not self._begun:
            self._begun = True
            await self._fire("session_start", mode, reason=self._source)

    @property
    def judges_prompts(self) -> bool:
        return not self._agent and self.desk.listens("prompt_submit")

    async def refusal(self, text: str, mode: Mode) -> str:
        """`prompt_submit` for a prompt that joins a running turn: why it may not, or ""."""
        try:
            await self.submitted(text, mode)
        except PromptBlocked as blocked:
            return str(blocked)
        return ""

    async def submitted(self, text: str, mode: Mode) -> None:
        """`prompt_submit`. Raises PromptBlocked."""
        if self._agent:
            return
        verdict = await self._fire("prompt_submit", mode, text=text)
        if verdict.decision == "deny":
            raise PromptBlocked(verdict.message)
        self.heed()

    async def before_request(self, mode: Mode) -> None:
        """`before_llm_call`, and then the model is told what hooks have said since the last request."""
        await self._fire("before_llm_call", mode)
        self.heed()
        self.desk.tell(self._agent)

    async def after_reply(self, message: AssistantMessage, mode: Mode) -> None:
        names = tuple(call.name for call in message.calls)
        await self._fire("after_llm_call", mode, text=message.text, tools=names)
        self.heed()

    def heed(self) -> None:
        """Raise TurnHalted when a hook wants the turn to end."""
        halted = self.desk.take_halt()
        if halted:
            raise TurnHalted(halted)

    async def keeps_going(self, text: str, mode: Mode, times: int) -> bool:
        """`stop`: whether the turn must go on although the model has answered. `times` is how often it has gone on."""
        point: Point = "subagent_stop" if self._agent else "stop"
        verdict = await self._fire(point, mode, text=text, again=times > 0)
        if verdict.halt:
            self.desk.take_halt()
            return False
        if not verdict.go_on:
            return False
        if times >= MAX_KEPT_GOING:
            why = f"Stop hooks have kept this turn going {times} times; it ends now all the same."
            self.desk.recorder.emit(Warned(why), self._agent)
            return False
        self.desk.recorder.emit(Noted(verdict.message or GO_ON), self._agent)
        return True

    # --- points that only watch ---

    def failed(self, ended: TurnEnded, mode: Mode) -> None:
        if ended.reason == "error" and ended.error_kind not in _OUR_OWN_ENDS:
            self._watch(HookCall("agent_error", self._agent, mode, text=ended.error, reason=ended.error_kind))

    def rests(self, ended: TurnEnded) -> None:
        """The agent has answered everything."""
        self._watch(HookCall("idle", self._agent, text=ended.text, reason=ended.reason))

    async def over(self) -> None:
        """`session_end`, after everything that is still being told. Only for a session that began."""
        await self._watchers.settle()
        if self._begun and self.desk.listens("session_end"):
            await self._tell(HookCall("session_end", self._agent, reason="exit"))

    def _watch(self, call: HookCall) -> None:
        if self.desk.listens(call.point):
            self._watchers.add(self._tell(call))

    async def _tell(self, call: HookCall) -> None:
        with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
            await self.desk.fire(call)
            self.desk.take_halt()

    async def _fire(
        self,
        point: Point,
        mode: Mode,
        *,
        text: str = "",
        reason: str = "",
        again: bool = False,
        tools: tuple[str, ...] = (),
    ) -> HookVerdict:
        if not self.desk.listens(point):
            return SILENT
        return await self.desk.fire(
            HookCall(point, self._agent, mode, text=text, reason=reason, again=again, tools=tools)
        )
