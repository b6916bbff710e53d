"""AgentTool: gives a task to a sub-agent and waits for its answer."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from odin.core.errors import UsageError
from odin.core.event import TurnEnded
from odin.core.tool import Args, Kind, SideEffect, SubAgentTask, Target, Tool, ToolContext, ToolOutput, fail

DEFAULT_TYPE = "general"

RunTask = Callable[[SubAgentTask], Awaitable[TurnEnded]]
"""Runs a task until its turn ends."""


class AgentArgs(Args, frozen=True):
    description: str
    prompt: str
    agent_type: str = ""


class AgentTool(Tool[AgentArgs]):
    """Give a wide search or side task to a sub-agent and wait for its one answer: say exactly what to report."""

    name = "AgentTool"
    kind: Kind = "interactive"
    short = "Give a self-contained task to a sub-agent and get its answer."
    args: ClassVar[type[Args]] = AgentArgs
    argument_aliases: ClassVar[tuple[tuple[str, str], ...]] = (("subagent_type", "agent_type"),)

    def __init__(self, run: RunTask) -> None:
        self._run = run

    @property
    def side_effect(self) -> SideEffect:
        """Mutating, because the sub-agent has every tool of the mode."""
        return "mutating"

    def get_target(self, args: AgentArgs) -> Target:
        return Target(name=args.agent_type.strip() or DEFAULT_TYPE)

    def get_title(self, args: AgentArgs) -> str:
        return args.description

    def validate(self, args: AgentArgs) -> str:
        has_task = args.description.strip() and args.prompt.strip()
        return "" if has_task else "The sub-agent needs a description and a prompt."

    async def run(self, args: AgentArgs, ctx: ToolContext) -> ToolOutput:
        task = SubAgentTask(args.description, args.prompt, ctx.mode, ctx.call_id, ctx.agent, args.agent_type)
        try:
            ended = await self._run(task)
        except UsageError as error:
            return fail(error.describe())
        note = f"sub-agent: {args.description}"
        if ended.reason == "end_turn":
            return ToolOutput(text=ended.text, note=note)
        return fail(
            f"The sub-agent stopped early ({ended.reason}): {ended.error} What it said last: {ended.text}".strip()
        )
