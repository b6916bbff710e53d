"""Takes out of a conversation what the model is done with: older results, old images, and results it cannot hold."""

from odin.context.archive import write_results
from odin.context.prune import Pruning, choose
from odin.context.size import tokens_of
from odin.core.event import ResultsPruned
from odin.core.message import Message, ToolMessage
from odin.engine.compact.compaction import WindowKeeper
from odin.engine.kit import Planner
from odin.session.shrink import in_view, is_pruned, titles_of

RECENT = 0.25
"""The share of the free window that the newest results keep when older ones are pruned."""

WORTH = 0.2
"""Pruning changes what the model has read before, which costs; so it must free at least this share of the window."""

GIANT = 0.35
"""Results of one reply that take more than this share of the free window have to be read in parts."""

_ALL = 1 << 60


class Pruner:
    def __init__(self, keeper: WindowKeeper) -> None:
        self._keeper = keeper
        self._means = keeper.means

    def _messages(self) -> tuple[Message, ...]:
        return self._keeper.thread.finished()

    def usual(self, planner: Planner) -> bool:
        """In one go, and only if it is worth it."""
        free = self._keeper.free(planner)
        return self.prune(planner, int(free * RECENT), least=int(free * WORTH))

    def prune(self, planner: Planner, recent: int, *, least: int = 0, images: int = 4) -> bool:
        """Show older results as one line, all at once, if that frees at least so many tokens."""
        shown = images if planner.info.images else _ALL
        found = choose(self._messages(), recent=recent, gone=is_pruned, images_kept=shown)
        if found.empty or found.freed < max(1, least):
            return False
        self._prune(found)
        return True

    def cut_giants(self, planner: Planner) -> None:
        """Results of the newest reply that would fill the window by themselves: the model must read them in parts."""
        last = next((item for item in reversed(self._messages()) if isinstance(item, ToolMessage)), None)
        if last is None:
            return
        sizes = {result.call_id: tokens_of(result.text) for result in last.results if not is_pruned(result)}
        room = int(self._keeper.free(planner) * GIANT)
        giants: list[str] = []
        while sizes and sum(sizes.values()) > room:
            largest = max(sizes, key=lambda call_id: sizes[call_id])
            giants.append(largest)
            del sizes[largest]
        if giants:
            self._prune(Pruning(tuple(giants)))

    def _prune(self, found: Pruning) -> None:
        messages = self._messages()
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
                archive = write_results(self._means.folder, whole_texts)
            except OSError:
                archive = ""
        self._means.recorder.emit(ResultsPruned(found.calls, found.images, archive), self._keeper.agent)
        self._means.forget(in_view(self._messages(), (file.path for file in self._means.files())))
