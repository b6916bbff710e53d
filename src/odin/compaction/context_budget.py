"""Keeps the conversation of each agent within the context window of its model.

A `ContextBudget` checks the size of every request, which is cheap. The `CompactionWorker`, which shortens the
conversation, is loaded when it is first needed. `ContextBudgets` builds the budgets of all agents of a session.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from odin.compaction.agent_context import AgentContext, CompactionDeps
from odin.compaction.measure import ContextWindows, count_message_tokens
from odin.config import Config
from odin.context.file_cache import FileCache
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import ContextOverflow
from odin.core.event import Warned
from odin.core.event_values import CompactionProfile, Mode
from odin.core.message import Usage
from odin.core.op import Compact
from odin.core.provider import Compactor, ModelInfo, NoCompactor, Provider
from odin.engine.call import CallScope
from odin.engine.hooks import HookInbox
from odin.engine.limits import CostBudget, RepetitionGuard
from odin.engine.recorder import Recorder
from odin.engine.turn import Compaction, NoCompaction, RequestTemplate

if TYPE_CHECKING:
    from odin.compaction.worker import CompactionWorker


_MAX_OVERFLOW_RETRIES = 2
_CUT_OFF_SHARE = 0.5


class ContextBudget(AgentContext):
    """The budget of one agent. `compact` and `cancel` serve user commands; the turn calls everything else."""

    def __init__(self, deps: CompactionDeps, agent: str = "") -> None:
        super().__init__(deps, agent)
        self._scope: CallScope | None = None
        self._worker: CompactionWorker | None = None
        self._model = ("", "")
        self._raw = 0
        self._overflows = 0
        self._warned = False

    @property
    def is_running(self) -> bool:
        """True while a summary is being written or waits to be applied."""
        return self._worker is not None and self._worker.is_running

    async def prepare_request(self, template: RequestTemplate, scope: CallScope) -> None:
        """Apply a finished summary and shorten the conversation if needed, before a request is sent."""
        self._overflows = 0
        if (template.info.provider, template.info.id) != self._model:
            self._model = (template.info.provider, template.info.id)
            self.estimator.reset()
        if scope is not self._scope:
            self._scope = scope
            self.turn_number += 1
        if self._worker is not None:
            await self._worker.apply(scope)
        if self.deps.settings.is_automatic:
            # Calibrate the estimator with the usage of the last reply before the resume.
            known = self.deps.recorder.state.conversation.tokens
            if not (self.estimator.is_calibrated or self.agent or not known):
                messages = self.thread.build_history()
                if len(messages) > 1:
                    self.estimator.calibrate(self.measure_request(template) - count_message_tokens(messages[-1]), known)
            self._raw = self.measure_request(template)
            size = self.estimator.estimate(self._raw)
            if not self.is_crowded(template, size):
                return
            await self._get_worker().make_room(template, scope, size)
        self._raw = self.measure_request(template)

    @property
    def expected_tokens(self) -> int:
        return self.estimator.estimate(self._raw)

    def record_usage(self, template: RequestTemplate, usage: Usage) -> None:
        """Calibrate the estimator with the usage of the last request."""
        real = usage.input + usage.cache_read + usage.cache_write
        if not real or not self._raw:
            return
        if not self._warned and self.estimator.is_truncated(self._raw, real):
            self._warned = True
            self.deps.recorder.emit(Warned(_format_truncation_warning(template.info, real)), self.agent)
        self.estimator.calibrate(self._raw, min(real, self._raw * 3 // 2))

    async def handle_overflow(self, template: RequestTemplate, scope: CallScope, error: ContextOverflow) -> bool:
        """Shorten the conversation after the server refused a request as too long. True if it can be sent again."""
        if not self.deps.settings.is_automatic:
            return False
        self._overflows += 1
        size = self.estimate_size(template)
        if error.size > size and self._raw:
            self.estimator.calibrate(self._raw, error.size)
            size = error.size
        work = self._get_worker()
        self.deps.windows.learn(template.info, error.limit or int(size * (0.9 if self.get_budget(template) else 0.75)))
        if self._overflows > _MAX_OVERFLOW_RETRIES:
            raise work.build_failure(template, str(error))
        await work.ensure_fit(template, scope, "overflow")
        self._raw = self.measure_request(template)
        return True

    async def handle_cut_off(self, template: RequestTemplate, scope: CallScope) -> bool:
        """Shorten the conversation if a reply was cut off for lack of room. True if it can be sent again."""
        if not self.deps.settings.is_automatic:
            return False
        size, budget = self.estimate_size(template), self.get_budget(template)
        if not self.is_crowded(template, size) and not (budget and size >= budget * _CUT_OFF_SHARE):
            return False
        done = await self._get_worker().compact_now(template, scope, "cut_off")
        self._raw = self.measure_request(template)
        return done

    async def compact(
        self, template: RequestTemplate, scope: CallScope, focus: str, profile: CompactionProfile
    ) -> bool:
        """Start a summary in the background. False if one is running or there is too little to summarize."""
        return await self._get_worker().begin_manual(template, scope, focus, profile)

    def cancel(self) -> bool:
        return self._worker is not None and self._worker.cancel()

    def _get_worker(self) -> "CompactionWorker":
        if self._worker is None:
            from odin.compaction.worker import CompactionWorker

            self._worker = CompactionWorker(self)
        return self._worker


def _format_truncation_warning(info: ModelInfo, real: int) -> str:
    return (
        f"The server seems to truncate requests: it counted {real:,} tokens, far fewer than were sent to {info.id}. "
        "Increase its context window, or set `context` for this model to the real size."
    )


class ContextBudgets:
    """The context budgets of all agents of a session, and the user's compaction commands.

    `connect` returns the model that writes summaries: the named one, or one that suits the current one.
    `custom_compactor` comes from the program that embeds the session.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        budget: CostBudget,
        folder: Path,
        environment: ExecutionEnvironment,
        connect: Callable[[str, tuple[Provider, ModelInfo]], Awaitable[tuple[Provider, ModelInfo]]],
        custom_compactor: Compactor | None = None,
    ) -> None:
        self.windows = ContextWindows()
        self._config = config
        self._recorder = recorder
        self._budget = budget
        self._folder = folder
        self._environment = environment
        self._connect = connect
        self._custom_compactor = custom_compactor
        self._tasks: set[asyncio.Task[None]] = set()
        self._budgets: dict[str, ContextBudget] = {}
        self._templates: dict[str, Callable[[Mode], RequestTemplate]] = {}

    def make_budget(self, agent: str, hook_inbox: HookInbox, files: FileCache) -> Compaction:
        if isinstance(self._custom_compactor, NoCompactor):
            return NoCompaction()

        deps = CompactionDeps(
            recorder=self._recorder,
            hook_inbox=hook_inbox,
            settings=self._config.compaction,
            windows=self.windows,
            folder=self._folder,
            shell=self._environment.shell,
            max_tokens=self._config.max_tokens,
            thinking=self._config.thinking,
            budget=self._budget,
            connect_summarizer=self._connect_summarizer,
            files=files.list_files,
            keep_in_view=files.keep_in_view,
            tasks=self._tasks,
            custom_compactor=self._custom_compactor,
        )
        budget = self._budgets[agent] = ContextBudget(deps, agent)
        return budget

    def set_template(self, agent: str, template: Callable[[Mode], RequestTemplate]) -> None:
        """Set the function that returns an agent's template for a mode."""
        self._templates[agent] = template

    def remove(self, agent: str) -> None:
        """Forget an agent that has ended."""
        self._budgets.pop(agent, None)
        self._templates.pop(agent, None)

    async def compact(self, op: Compact) -> bool:
        budget, template = self._budgets.get(op.agent), self._templates.get(op.agent)
        if budget is None or template is None:
            return False
        record = self._recorder.state.sub_agents.get(op.agent)
        mode = self._recorder.state.mode if record is None else record.mode
        scope = CallScope(op.agent, mode, self._environment.cwd, self._config.root, RepetitionGuard())
        return await budget.compact(template(mode), scope, op.focus.strip(), op.profile)

    def measure_sizes(self, template: RequestTemplate) -> tuple[int, int, int, int]:
        """In tokens: the context window, what of it is for requests, the compaction threshold and the main agent's next
        request, estimated.
        """
        window, main = self.windows.get_window(template.info), self._budgets.get("")
        if main is None:
            return window, 0, 0, 0
        return window, main.get_room(template), main.get_threshold(template), main.estimate_size(template)

    @property
    def is_running(self) -> bool:
        """True while the main agent's conversation is summarized."""
        return "" in self._budgets and self._budgets[""].is_running

    def cancel(self, agent: str = "") -> bool:
        return agent in self._budgets and self._budgets[agent].cancel()

    async def close(self) -> None:
        running = list(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _connect_summarizer(self, template: RequestTemplate) -> tuple[Provider, ModelInfo]:
        name = self._config.compaction.model or self._config.small_model
        return await self._connect(name, (template.provider, template.info))
