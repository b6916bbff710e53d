"""Takes out of a conversation what the model is done with: older results, old images, and results it cannot hold."""

from odin.context.archive import write_results
from odin.context.prune import PruneSelection, select_prunable
from odin.context.size import tokens_of
from odin.core.event import ResultsPruned
from odin.core.message import Message, ToolMessage
from odin.engine.compact.compaction import ContextBudget
from odin.engine.kit import Planner
from odin.session.shrink import find_paths_in_view, is_pruned, titles_of

RECENT_SHARE = 0.25
"""The share of the free window that the newest results keep when older ones are pruned."""

MIN_FREED_SHARE = 0.2
"""Pruning changes what the model has read before, which costs; so it must free at least this share of the window."""

GIANT_SHARE = 0.35
"""Results of one reply that take more than this share of the free window have to be read in parts."""

_NO_LIMIT = 1 << 60


class Pruner:
    def __init__(self, keeper: ContextBudget) -> None:
        self._budget = keeper
        self._deps = keeper.deps

    def _get_messages(self) -> tuple[Message, ...]:
        return self._budget.thread.build_finished_history()

    def prune_if_worthwhile(self, planner: Planner) -> bool:
        """In one go, and only if it is worth it."""
        free = self._budget.free_tokens_of(planner)
        return self.prune(planner, int(free * RECENT_SHARE), least=int(free * MIN_FREED_SHARE))

    def prune(self, planner: Planner, recent: int, *, least: int = 0, images: int = 4) -> bool:
        """Show older results as one line, all at once, if that frees at least so many tokens."""
        shown = images if planner.info.images else _NO_LIMIT
        found = select_prunable(self._get_messages(), recent=recent, is_gone=is_pruned, images_kept=shown)
        if found.is_empty or found.freed < max(1, least):
            return False
        self._apply(found)
        return True

    def prune_giants(self, planner: Planner) -> None:
        """Results of the newest reply that would fill the window by themselves: the model must read them in parts."""
        last = next((item for item in reversed(self._get_messages()) if isinstance(item, ToolMessage)), None)
        if last is None:
            return
        sizes = {result.call_id: tokens_of(result.text) for result in last.results if not is_pruned(result)}
        room = int(self._budget.free_tokens_of(planner) * GIANT_SHARE)
        giants: list[str] = []
        while sizes and sum(sizes.values()) > room:
            largest = max(sizes, key=lambda call_id: sizes[call_id])
            giants.append(largest)
            del sizes[largest]
        if giants:
            self._apply(PruneSelection(tuple(giants)))

    def _apply(self, found: PruneSelection) -> None:
        messages = self._get_messages()
        wanted, titles = frozenset(found.calls), titles_of(messages)
        whole_texts = [
            (result.call_id, titles.get(result.call_id, ""), result.text)
            for message in messages
            if isinstance(message, ToolMessage)
            for result in message.results
            if result.call_id in wanted
        ]
        archive = ""
        if whole_texts:
            try:
                archive = write_results(self._deps.folder, whole_texts)
            except OSError:
                archive = ""
        self._deps.recorder.emit(ResultsPruned(found.calls, found.images, archive), self._budget.agent)
        self._deps.forget(find_paths_in_view(self._get_messages(), (file.path for file in self._deps.files())))
