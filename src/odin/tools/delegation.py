"""The tools with which agents give tasks to each other: Delegate, Notify, Cancel, Complete and Escalate."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from odin.core.errors import OdinError, UsageError
from odin.core.team import Delegation, ReportKind, TaskHandle, TaskReport, TaskRequest
from odin.core.tool import A, Args, SideEffect, Target, Tool, ToolContext, ToolOutput, fail
from odin.tools.agent import DEFAULT_TYPE

_REFUSED = ("depth_limit_reached", "agent_limit_reached", "child_limit_reached", "already_exists", "scope_conflict")

NonEmpty = Annotated[str, Meta(min_length=1)]


class _TeamTool(Tool[A]):
    kind = "interactive"

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation


class ScopeArg(Struct, frozen=True, forbid_unknown_fields=True):
    files: tuple[str, ...] = ()
    path_prefix: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    read_only: bool = False


class DelegateArgs(Args, frozen=True):
    description: str
    agent_type: str = ""
    plan_task_ref: str = ""
    semantic_task_key: str = ""
    expected_write_scope: ScopeArg | None = None


class DelegateTool(_TeamTool[DelegateArgs]):
    """Start a sub-agent in the background; its result comes as mail."""

    name = "Delegate"
    short = "Give a task to a sub-agent in the background."
    args = DelegateArgs

    @property
    def side_effect(self) -> SideEffect:
        return "mutating"

    def is_offered(self) -> bool:
        return self._delegation.can_delegate()

    @property
    def description(self) -> str:
        return f"{super().description} Types: {self._delegation.describe_types()}"

    def get_target(self, args: DelegateArgs) -> Target:
        return Target(name=args.agent_type.strip() or DEFAULT_TYPE)

    def get_title(self, args: DelegateArgs) -> str:
        return args.description.split("\n", 1)[0]

    async def run(self, args: DelegateArgs, ctx: ToolContext) -> ToolOutput:
        scope = args.expected_write_scope or ScopeArg()
        request = TaskRequest(
            args.description,
            args.agent_type,
            ctx.mode,
            ctx.call_id,
            args.plan_task_ref,
            args.semantic_task_key,
            scope.files,
            scope.path_prefix,
            scope.modules,
            scope.read_only,
        )
        try:
            return _show(await self._delegation.delegate(request))
        except UsageError as error:
            return fail(error.describe())


class NotifyArgs(Args, frozen=True):
    task_id: str
    message: str


class NotifyTool(_TeamTool[NotifyArgs]):
    """Write to a task you have delegated, also to continue a completed one."""

    name = "Notify"
    short = "Write to a delegated task."
    args = NotifyArgs

    def is_offered(self) -> bool:
        return self._delegation.has_tasks()

    def get_title(self, args: NotifyArgs) -> str:
        return f"{args.task_id}: {args.message}"

    async def run(self, args: NotifyArgs, ctx: ToolContext) -> ToolOutput:
        try:
            return _show(await self._delegation.notify(args.task_id, args.message, ctx.mode))
        except UsageError as error:
            return fail(error.describe())


class ReportArgs(Args, frozen=True):
    message: str
    kind: ReportKind = "progress"


class ReportTool(_TeamTool[ReportArgs]):
    """Tell your owner about progress, a risk, or something that blocks you, and go on."""

    name = "Report"
    short = "Report to your owner."
    args = ReportArgs

    def get_title(self, args: ReportArgs) -> str:
        return f"{args.kind}: {args.message}"

    async def run(self, args: ReportArgs, ctx: ToolContext) -> ToolOutput:
        try:
            return _show(self._delegation.report(args.message, args.kind))
        except UsageError as error:
            return fail(error.describe())


class CancelArgs(Args, frozen=True):
    task_id: str
    reason: str = ""


class CancelTool(_TeamTool[CancelArgs]):
    """Cancel a task you have delegated."""

    name = "Cancel"
    short = "Cancel a delegated task."
    args = CancelArgs

    def is_offered(self) -> bool:
        return self._delegation.has_tasks()

    def get_title(self, args: CancelArgs) -> str:
        return args.task_id

    async def run(self, args: CancelArgs, ctx: ToolContext) -> ToolOutput:
        try:
            return _show(await self._delegation.cancel(args.task_id, args.reason))
        except UsageError as error:
            return fail(error.describe())


class ApplyArgs(Args, frozen=True):
    task_id: str


class ApplyTool(_TeamTool[ApplyArgs]):
    """Merge the worktree of a task you have delegated into the project. Read its diff first."""

    name = "Apply"
    kind = "edit"
    short = "Merge the worktree of a delegated task into the project."
    args = ApplyArgs
    exclusive = True

    def is_offered(self) -> bool:
        return self._delegation.has_worktrees()

    def get_title(self, args: ApplyArgs) -> str:
        return args.task_id

    def validate(self, args: ApplyArgs) -> str:
        return self._delegation.find_apply_problem(args.task_id)

    def get_target(self, args: ApplyArgs) -> Target:
        return Target(paths=self._delegation.list_work(args.task_id))

    async def preview(self, args: ApplyArgs) -> str:
        return await self._delegation.preview_work(args.task_id)

    async def run(self, args: ApplyArgs, ctx: ToolContext) -> ToolOutput:
        try:
            done = await self._delegation.apply_work(args.task_id)
        except OdinError as error:
            return fail(error.describe())
        return ToolOutput(text=done, note=f"Applied {args.task_id}", view=done)


class CompleteArgs(Args, frozen=True):
    summary: NonEmpty
    files_changed: tuple[str, ...] = ()
    verification_run: tuple[str, ...] = ()
    remaining_limitations: tuple[str, ...] = ()
    known_risks: tuple[str, ...] = ()
    follow_up_recommended: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


class CompleteTool(_TeamTool[CompleteArgs]):
    """End your task. The summary is what your owner reads: what was done, found and verified."""

    name = "Complete"
    short = "End your task with a summary."
    args = CompleteArgs

    def get_title(self, args: CompleteArgs) -> str:
        return args.summary.split("\n", 1)[0]

    async def run(self, args: CompleteArgs, ctx: ToolContext) -> ToolOutput:
        completion = TaskReport(**{name: getattr(args, name) for name in args.__struct_fields__})
        try:
            return msgspec.structs.replace(_show(self._delegation.complete(completion)), answer=args.summary)
        except UsageError as error:
            return msgspec.structs.replace(fail(error.describe()), keeps_turn=True)


class EscalateArgs(Args, frozen=True):
    question: NonEmpty


class EscalateTool(_TeamTool[EscalateArgs]):
    """Ask your owner for a decision you cannot make, and wait for the answer."""

    name = "Escalate"
    short = "Ask your owner for a decision."
    args = EscalateArgs

    def get_title(self, args: EscalateArgs) -> str:
        return args.question.split("\n", 1)[0]

    async def run(self, args: EscalateArgs, ctx: ToolContext) -> ToolOutput:
        try:
            return msgspec.structs.replace(_show(self._delegation.ask_owner(args.question)), answer=args.question)
        except UsageError as error:
            return msgspec.structs.replace(fail(error.describe()), keeps_turn=True)


def _show(handle: TaskHandle) -> ToolOutput:
    text = msgspec.json.encode(handle).decode()
    note = f"{handle.task_id}: {handle.status}" if handle.task_id else handle.status
    return ToolOutput(text=text, is_error=handle.status in _REFUSED, note=note)
