"""What stands beside the replies: notices, retries, summaries, processes, sub-agents, rewinds."""

from typing import Literal

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Compacted,
    ContextAdded,
    Redone,
    RetryScheduled,
    Rewound,
    SpawnFinished,
    SpawnStarted,
    Warned,
)
from odin.ui.telling import retry_line
from odin.ui.tui.story.block import AgentBlock, Block, CommandBlock, NoticeBlock, ProcessBlock, SummaryBlock, kept
from odin.ui.tui.story.calls import Calls
from odin.ui.tui.story.page import Page


class Beside:
    def __init__(self, page: Page, calls: Calls) -> None:
        self._page = page
        self._calls = calls
        self._retry: tuple[NoticeBlock, RetryScheduled] | None = None
        self._processes: dict[str, ProcessBlock] = {}
        self.agents: dict[str, AgentBlock] = {}
        self._gone: list[tuple[str, list[Block], NoticeBlock]] = []

    def notice(self, text: str, level: Literal["info", "warn", "error"] = "info") -> NoticeBlock:
        return self._page.add(NoticeBlock(key=self._page.key("notice"), text=text, level=level))

    def warned(self, event: Warned) -> None:
        self.notice(event.text, event.level)

    def context_added(self, event: ContextAdded) -> None:
        if not event.command:
            return
        block = self._calls.command_over(event.id)
        if block is None:
            block = self._page.add(CommandBlock(key=self._page.key("command"), command=event.command))
        block.output, block.live, block.tail = kept(event.content), False, []
        self._page.touch(block)

    def compacted(self, event: Compacted) -> None:
        self._page.add(
            SummaryBlock(
                key=self._page.key("summary"),
                text=event.text,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
            )
        )

    # --- retries: one notice, however many ---

    def retry(self, event: RetryScheduled) -> None:
        if self._retry is None:
            self._retry = self.notice(retry_line(event), "warn"), event
            return
        notice = self._retry[0]
        self._retry = notice, event
        notice.text = retry_line(event)
        self._page.touch(notice)

    def tried(self, then: str) -> None:
        """The model has answered, or it never will: what is said about the tries is in the past from here on."""
        if self._retry is None:
            return
        notice, event = self._retry
        self._retry = None
        times = f"{event.attempt} {'time' if event.attempt == 1 else 'times'}"
        notice.text, notice.level = f"It failed {times} ({event.error.rstrip('.')}), then {then}.", "info"
        self._page.touch(notice)

    # --- work elsewhere ---

    def spawn_started(self, event: SpawnStarted) -> None:
        block = ProcessBlock(key=event.id, command=event.command, description=event.description)
        self._processes[event.id] = self._page.add(block)

    def spawn_finished(self, event: SpawnFinished) -> None:
        block = self._processes.pop(event.id, None)
        if block is not None:
            block.status, block.code, block.output = event.status, event.code, kept(event.output)
            block.ended = self._page.now
            self._page.touch(block)

    def agent_started(self, event: AgentStarted) -> None:
        self.agents[event.id] = self._page.add(AgentBlock(key=event.id, task=event.task, mode=event.mode))

    def agent_ended(self, event: AgentEnded) -> None:
        block = self.agents.get(event.id)
        if block is not None:
            block.reason, block.answer, block.ended, block.doing = event.reason, event.text, self._page.now, ""
            self._page.touch(block)

    def agent_did(self, agent: str, what: str, calls: int) -> None:
        block = self.agents.get(agent)
        if block is not None:
            block.doing = what or block.doing
            block.calls += calls
            self._page.touch(block)

    # --- going back ---

    def rewound(self, event: Rewound) -> list[Block]:
        """The conversation from that prompt on goes, and is kept for as long as it may come back."""
        files = len(event.changes)
        put_back = f"{files} {'file' if files == 1 else 'files'} put back" if files else "no file had changed"
        back = put_back if event.files else "files left as they are"
        gone = self._page.cut(event.turn) if event.chat else []
        left = f"; {len(event.kept)} left alone because somebody else changed them" if event.kept else ""
        notice = self.notice(f"Went back to before that prompt; {back}{left}. /redo takes this back.")
        self._gone.append((event.id, gone, notice))
        return gone

    def redone(self, event: Redone) -> None:
        found = next((item for item in reversed(self._gone) if item[0] == event.id), None)
        if found is not None:
            self._gone.remove(found)
            self._page.put_back(found[1], found[2])
        self.notice("The rewind was taken back.")

    def no_way_back(self) -> None:
        """Something new was said: what was taken back can no longer return."""
        self._gone.clear()
