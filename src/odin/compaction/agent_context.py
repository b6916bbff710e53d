"""The conversation of one agent, measured against the context window of its model."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from odin.compaction.measure import ContextWindows, TokenEstimator, estimate_tokens
from odin.context.settings import CompactionSettings
from odin.core.event_values import CachedFile
from odin.core.provider import Compactor, ModelInfo, Provider
from odin.engine.hooks import HookInbox
from odin.engine.limits import CostBudget
from odin.engine.recorder import Recorder
from odin.engine.turn import RequestTemplate
from odin.session.thread import Thread

MAX_IMAGES = 20
"""Images per request at most; older ones are left out."""

_REPLY_SHARE = 4
"""One in this many parts of the window is reserved for the reply."""

_THINKING_SHARE = 2
_ROOMY_WINDOW = 32_768
"""In windows of at least this size, a reply with thinking gets `_THINKING_SHARE` instead."""


class CompactionDeps(Struct, frozen=True):
    """The dependencies of a budget. `connect_summarizer` returns the model that writes summaries.

    `files` lists the files the agent has read; `keep_in_view` drops those whose paths are not in the given set.
    """

    recorder: Recorder
    hook_inbox: HookInbox
    settings: CompactionSettings
    windows: ContextWindows
    folder: Path
    shell: str
    max_tokens: int
    thinking: int
    budget: CostBudget
    connect_summarizer: Callable[[RequestTemplate], Awaitable[tuple[Provider, ModelInfo]]]
    files: Callable[[], Sequence[CachedFile]]
    keep_in_view: Callable[[frozenset[str]], None]
    tasks: "set[asyncio.Task[None]]"
    custom_compactor: Compactor | None = None


class AgentContext:
    """What an agent's requests take of the window, and from which size on they are too large."""

    def __init__(self, deps: CompactionDeps, agent: str = "") -> None:
        self.deps = deps
        self.agent = agent
        self.estimator = TokenEstimator()
        self.turn_number = 0

    @property
    def thread(self) -> Thread:
        return self.deps.recorder.state.get_thread(self.agent)

    def measure_request(self, template: RequestTemplate) -> int:
        """The raw size of the next request, not calibrated by what the model reported."""
        max_images = MAX_IMAGES if template.info.images else 0
        summary = self.thread.summary
        fixed = self.estimator.measure_fixed(template.system, template.tools) + (
            estimate_tokens(summary) if summary else 0
        )
        return fixed + self.estimator.measure_messages(self.thread.build_history(), max_images)

    def estimate_size(self, template: RequestTemplate) -> int:
        return self.estimator.estimate(self.measure_request(template))

    def get_reply_room(self, template: RequestTemplate) -> int:
        """The tokens reserved for a reply at most; 0 if the window is unknown."""
        window = self.deps.windows.get_window(template.info)
        return window // (
            _THINKING_SHARE if self._get_thinking_budget(template) and window >= _ROOMY_WINDOW else _REPLY_SHARE
        )

    def get_budget(self, template: RequestTemplate) -> int:
        """The tokens a request may have; 0 if the window is unknown."""
        window = self.deps.windows.get_window(template.info)
        limit = self.deps.max_tokens
        output = min(limit, template.info.max_output or limit) + self._get_thinking_budget(template)
        return window - min(output, self.get_reply_room(template)) if window else 0

    def _get_thinking_budget(self, template: RequestTemplate) -> int:
        return self.deps.thinking if template.info.thinking else 0

    def count_free_tokens(self, template: RequestTemplate) -> int:
        """The tokens available to messages. If the window is unknown, the current size counts as the budget."""
        budget = self.get_budget(template) or self.estimate_size(template)
        return max(0, budget - self.estimator.measure_fixed(template.system, template.tools))

    def get_room(self, template: RequestTemplate) -> int:
        """The budget without the tokens that the settings reserve."""
        budget = self.get_budget(template)
        return budget - min(self.deps.settings.reserved, budget // 2)

    def get_threshold(self, template: RequestTemplate) -> int:
        """The size at which compaction starts; 0 if it never does, or the window is unknown."""
        settings = self.deps.settings
        return int(self.get_room(template) * settings.threshold) if settings.is_automatic else 0

    def is_crowded(self, template: RequestTemplate, size: int) -> bool:
        """True if the conversation should be shortened at this size."""
        custom, budget = self.deps.custom_compactor, self.get_budget(template)
        if custom is not None:
            window = self.deps.windows.get_window(template.info)
            return custom.should_compact(size, window) or bool(budget and size > budget)
        limit = self.deps.settings.max_messages
        is_long = bool(limit and len(self.thread.build_history()) > limit)
        threshold = self.get_threshold(template)
        return is_long or bool(threshold and size >= threshold)
