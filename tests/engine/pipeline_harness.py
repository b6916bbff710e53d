"""A call pipeline without a session: scripted hooks, redaction and sandbox, and a user who answers at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from odin.core.call_events import PermissionAsked
from odin.core.event import AnyEvent
from odin.core.event_values import Mode
from odin.core.interaction import read_answer
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission
from odin.core.policy import NO_HOOK_EFFECT, RECORDED_POINTS, HookCall, HookEffect, HookPoint, Redact, redact_nothing
from odin.core.tool import Args, Registry, Target, Tool, ToolContext, ToolOutput
from odin.engine.call import CallDeps, CallScope
from odin.engine.event_bus import EventBus
from odin.engine.hooks import HookInbox
from odin.engine.interactions import Interactions
from odin.engine.limits import RepetitionGuard
from odin.engine.pipeline import CallPipeline
from odin.engine.recorder import Recorder
from odin.policy.policy import Policy
from odin.session.state import SessionState
from tests.policy.policies import make_policy
from tests.waiting import TimeLimit

HookReply = Callable[[HookCall], HookEffect]


class ScriptedHooks:
    """Hooks with scripted verdicts; `calls` keeps the calls that they received."""

    def __init__(self, **points: HookReply) -> None:
        self.calls: list[HookCall] = []
        self._points = points

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return RECORDED_POINTS[point] in self._points

    async def fire(self, call: HookCall) -> HookEffect:
        self.calls.append(call)
        reply = self._points.get(RECORDED_POINTS[call.point])
        return reply(call) if reply else NO_HOOK_EFFECT


class RunArgs(Args, frozen=True):
    command: str


class RunTool(Tool[RunArgs]):
    """Pretends to run a command."""

    name = "Run"
    kind = "execute"
    short = "Pretends to run a command."
    args: ClassVar[type[Args]] = RunArgs

    def __init__(self, action: Callable[[str, ToolContext], Awaitable[ToolOutput]] | None = None) -> None:
        self.ran: list[tuple[str, ToolContext]] = []
        self._action = action

    def get_target(self, args: RunArgs) -> Target:
        return Target(command=args.command)

    async def run(self, args: RunArgs, ctx: ToolContext) -> ToolOutput:
        self.ran.append((args.command, ctx))
        return await self._action(args.command, ctx) if self._action else ToolOutput(f"ran {args.command}")


class PipelineHarness:
    """Runs calls of one tool; `answers` are given to permission requests in order; an unexpected request fails."""

    def __init__(
        self,
        root: Path,
        tool: Tool[Any],
        *,
        answers: Sequence[AnswerPermission] | None = None,
        hooks: ScriptedHooks | None = None,
        redact: Redact = redact_nothing,
        save: Callable[[str], str] | None = None,
        mode: Mode = "edit_mode",
        policy: Policy | None = None,
        **rules: Any,
    ) -> None:
        self.recorder = Recorder(None, SessionState("s"), EventBus())
        self.interactions = Interactions(self.recorder)
        self.interactions.attach(answers=answers is not None)
        self.inbox = HookInbox(self.recorder, hooks)
        self.events: list[AnyEvent] = []
        self._answers = list(answers or ())
        self._tool = tool.name
        self._scope = CallScope("", mode, str(root), str(root), RepetitionGuard())
        self._policy = policy or make_policy(root=str(root), **rules)
        deps = CallDeps(
            registry=Registry([tool]),
            policy=lambda: self._policy,
            interactions=self.interactions,
            recorder=self.recorder,
            hooks=self.inbox,
            redact=redact,
            save=save,
            sandbox=lambda: "a box",
        )
        self._pipeline = CallPipeline(deps)

    async def call(self, *calls: dict[str, Any]) -> bool:
        """Run these calls as one reply. Return True if the turn must stop."""
        subscription = self.recorder.bus.subscribe(durable=True, size=1024)
        user = asyncio.create_task(self._answer_requests(subscription))
        try:
            async with TimeLimit():
                requests = [ToolCall(f"c{number}", self._tool, args) for number, args in enumerate(calls)]
                return await self._pipeline.run_all(requests, self._scope)
        finally:
            self.recorder.bus.close()
            await user

    async def _answer_requests(self, events: Any) -> None:
        async for envelope in events:
            self.events.append(envelope.event)
            if isinstance(envelope.event, PermissionAsked):
                self.interactions.answer(read_answer(replace(self._answers.pop(0), ask_id=envelope.event.ask_id)))

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
