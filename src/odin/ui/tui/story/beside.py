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
from odin.ui.telling import format_retry
from odin.ui.tui.story.block import (
    AgentBlock,
    CommandBlock,
    NoticeBlock,
    ProcessBlock,
    SummaryBlock,
    TranscriptBlock,
    shorten_output,
)
from odin.ui.tui.story.calls import CallBlocks
from odin.ui.tui.story.page import BlockList


class NoticeBlocks:
    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls
        self._retry: tuple[NoticeBlock, RetryScheduled] | None = None
        self._processes: dict[str, ProcessBlock] = {}
        self.agents: dict[str, AgentBlock] = {}
        self._rewound: list[tuple[str, list[TranscriptBlock], NoticeBlock]] = []

    def add_notice(self, text: str, level: Literal["info", "warn", "error"] = "info") -> NoticeBlock:
        return self._blocks.add(NoticeBlock(key=self._blocks.make_key("notice"), text=text, level=level))

    def add_warning(self, event: Warned) -> None:
        self.add_notice(event.text, event.level)

    def add_context(self, event: ContextAdded) -> None:
        if not event.command:
            return
        block = self._calls.pop_command(event.id)
        if block is None:
            block = self._blocks.add(CommandBlock(key=self._blocks.make_key("command"), command=event.command))
        block.output, block.live, block.tail = shorten_output(event.content), False, []
        self._blocks.touch(block)

    def add_summary(self, event: Compacted) -> None:
        self._blocks.add(
            SummaryBlock(
                key=self._blocks.make_key("summary"),
                text=event.text,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
            )
        )

    # --- retries: one notice, however many ---

    def show_retry(self, event: RetryScheduled) -> None:
        if self._retry is None:
            self._retry = self.add_notice(format_retry(event), "warn"), event
            return
        notice = self._retry[0]
        self._retry = notice, event
        notice.text = format_retry(event)
        self._blocks.touch(notice)

    def close_retry(self, then: str) -> None:
        """The model has answered, or it never will: what is said about the tries is in the past from here on."""
        if self._retry is None:
            return
        notice, event = self._retry
        self._retry = None
        times = f"{event.attempt} {'time' if event.attempt == 1 else 'times'}"
        notice.text, notice.level = f"It failed {times} ({event.error.rstrip('.')}), then {then}.", "info"
        self._blocks.touch(notice)

    # --- work elsewhere ---

    def start_process(self, event: SpawnStarted) -> None:
        block = ProcessBlock(key=event.id, command=event.command, description=event.description)
        self._processes[event.id] = self._blocks.add(block)

    def end_process(self, event: SpawnFinished) -> None:
        block = self._processes.pop(event.id, None)
        if block is not None:
            block.status, block.code, block.output = event.status, event.code, shorten_output(event.output)
            block.ended = self._blocks.now
            self._blocks.touch(block)

    def start_agent(self, event: AgentStarted) -> None:
        self.agents[event.id] = self._blocks.add(AgentBlock(key=event.id, task=event.task, mode=event.mode))

    def end_agent(self, event: AgentEnded) -> None:
        block = self.agents.get(event.id)
        if block is not None:
            block.reason, block.answer, block.ended, block.doing = event.reason, event.text, self._blocks.now, ""
            self._blocks.touch(block)

    def record_agent(self, agent: str, what: str, calls: int) -> None:
        block = self.agents.get(agent)
        if block is not None:
            block.doing = what or block.doing
            block.calls += calls
            self._blocks.touch(block)

    # --- going back ---

    def rewind(self, event: Rewound) -> list[TranscriptBlock]:
        """The conversation from that prompt on goes, and is kept for as long as it may come back."""
        files = len(event.changes)
        put_back = f"{files} {'file' if files == 1 else 'files'} put back" if files else "no file had changed"
        back = put_back if event.files else "files left as they are"
        gone = self._blocks.cut(event.turn) if event.chat else []
        left = (
            f"; {len(event.skipped_files)} left alone because somebody else changed them" if event.skipped_files else ""
        )
        notice = self.add_notice(f"Went back to before that prompt; {back}{left}. /redo takes this back.")
        self._rewound.append((event.id, gone, notice))
        return gone

    def redo(self, event: Redone) -> None:
        found = next((item for item in reversed(self._rewound) if item[0] == event.id), None)
        if found is not None:
            self._rewound.remove(found)
            self._blocks.put_back(found[1], found[2])
        self.add_notice("The rewind was taken back.")

    def forget_rewinds(self) -> None:
        """Something new was said: what was taken back can no longer return."""
        self._rewound.clear()
