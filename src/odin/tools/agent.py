from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar

from msgspec import Meta

from odin.core.event import Mode, TurnEnded
from odin.core.tool import Args, Kind, SideEffect, Tool, ToolContext, ToolOutput, fail

RunTask = Callable[[str, Mode], Awaitable[TurnEnded]]
"""Runs one task in one mode to its end."""


class AgentArgs(Args, frozen=True):
    description: Annotated[str, Meta(min_length=1)]
    prompt: Annotated[str, Meta(min_length=1)]


class AgentTool(Tool[AgentArgs]):
    """Give a wide search or a side task to a sub-agent with its own context and your tools. You get its one final
    answer, so say exactly what to report."""

    name: ClassVar[str] = "AgentTool"
    kind: ClassVar[Kind] = "talk"
    short: ClassVar[str] = "Give a self-contained task to a sub-agent and get its answer."
    args: ClassVar[type[Args]] = AgentArgs

    def __init__(self, run: RunTask) -> None:
        self._run = run

    @property
    def side_effect(self) -> SideEffect:
        """It only talks, but what it starts has every tool of the mode."""
        return "mutating"

    def title_of(self, args: AgentArgs) -> str:
        return args.description

    async def run(self, args: AgentArgs, ctx: ToolContext) -> ToolOutput:
        ended = await self._run(args.prompt, ctx.mode)
        note = f"sub-agent: {args.description}"
        if ended.reason == "end_turn":
            return ToolOutput(text=ended.text, note=note)
        return fail(
            f"The sub-agent stopped early ({ended.reason}): {ended.error} What it said last: {ended.text}".strip()
        )
