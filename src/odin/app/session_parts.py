"""The parts of one session, as frozen structs. `compose` builds them bottom-up; each part gets the ones it needs.

SessionCore    where the session works: options, workspace, log and state
Permissions    what may be done: rules, hooks, interactions, sandbox and runner
ModelServices  who answers: models, prompts, budget and compaction
Extensions     what users add: roles, skills, memory, MCP and language servers
WorkServices   what is being done: workspaces, background processes and checkpoints of files
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from odin.app.agent_workspaces import AgentWorkspaces
from odin.app.policy import HookSet, SessionPolicy
from odin.app.process_services import ProcessServices, WorkspaceServices
from odin.app.request_templates import RequestTemplates
from odin.app.roles import SessionRoles
from odin.app.sandbox import LazySandbox
from odin.app.web_access import WebAccess
from odin.app.workspace import Workspace
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.compaction.context_budget import ContextBudgets
from odin.config import Config, Options
from odin.context.file_cache import FileOwnership
from odin.context.system_prompt import SystemPromptSource
from odin.core.environment import ExecutionEnvironment
from odin.core.event import Warned
from odin.core.provider import Compactor
from odin.core.tool import Tool
from odin.engine.call import BeforeStep
from odin.engine.hooks import HookTasks
from odin.engine.interactions import Interactions
from odin.engine.limits import CostBudget
from odin.engine.recorder import Recorder
from odin.engine.rule_changes import RuleChanges
from odin.engine.stream import RetryPolicy, SmallModel
from odin.engine.turn import TurnLimits
from odin.models.selection import ModelSelector
from odin.policy.rules.rule import RuleSet
from odin.policy.secrets import Redactor
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.session.log import SessionLog

if TYPE_CHECKING:
    from odin.app.language_servers import SessionLanguageServers
    from odin.app.memory import SessionMemory
    from odin.app.skills import SessionSkills
    from odin.app.verification import SessionVerification
    from odin.mcp.servers import SessionServers


T = TypeVar("T")


class OpenedLater(Generic[T]):
    """A part that most sessions do without: `current` is None until `open` makes it."""

    def __init__(self, make: Callable[[], T], *, now: bool = False) -> None:
        self.make = make
        self.current = make() if now else None

    def open(self) -> T:
        if self.current is None:
            self.current = self.make()
        return self.current


class CustomParts(Struct, frozen=True):
    """Parts that a program supplies: `tools` are added to the standard ones, `before_call` runs before every call."""

    tools: Sequence[Tool[Any]] = ()
    system_prompt: SystemPromptSource | None = None
    compactor: Compactor | None = None
    before_call: Sequence[BeforeStep] = ()


class SessionCore(Struct, frozen=True):
    """`source` is how the session started, for hooks."""

    options: Options
    workspace: Workspace
    log: SessionLog
    recorder: Recorder
    process: ProcessServices
    shared: WorkspaceServices
    custom: CustomParts = CustomParts()
    source: str = "startup"

    @property
    def config(self) -> Config:
        return self.workspace.config

    @property
    def environment(self) -> ExecutionEnvironment:
        return self.workspace.environment

    @property
    def folder(self) -> Path:
        return self.log.path.parent

    def warn(self, text: str) -> None:
        self.recorder.emit(Warned(text))


class Permissions(Struct, frozen=True):
    sandbox: LazySandbox
    runner: ProcessRunner
    hooks: HookSet
    interactions: Interactions
    rule_set: RuleSet
    rules: RuleChanges
    redact: Redactor
    policy: SessionPolicy


class ModelServices(Struct, frozen=True):
    models: ModelSelector
    templates: RequestTemplates
    small_model: SmallModel
    compaction: ContextBudgets
    budget: CostBudget
    limits: TurnLimits
    retry: RetryPolicy
    web: WebAccess


class Extensions(Struct, frozen=True):
    roles: SessionRoles
    skills: "SessionSkills | None"
    memory: OpenedLater["SessionMemory"]
    servers: OpenedLater["SessionServers"]
    language_servers: "SessionLanguageServers | None"


class WorkServices(Struct, frozen=True):
    workspaces: AgentWorkspaces
    background: BackgroundProcesses
    checkpoints: SessionCheckpoints
    verification: OpenedLater["SessionVerification"]
    ownership: FileOwnership
    hook_tasks: HookTasks


class SessionParts(Struct, frozen=True):
    """What an agent is made from."""

    core: SessionCore
    permissions: Permissions
    answering: ModelServices
    extensions: Extensions
    work: WorkServices
