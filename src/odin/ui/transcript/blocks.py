"""The blocks of a transcript, plain data without any widget, and the ordered list that records changes to them."""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from msgspec import Struct, field

from odin.core.event_values import Mode
from odin.core.format import pluralize
from odin.core.message import Image
from odin.core.team import ACTIVE_STATES, TaskState

CallState = Literal["writing", "queued", "asking", "running", "success", "error", "cancelled", "denied", "discarded"]
"""`queued` calls are allowed and wait for their turn; only `running` ones are animated."""

END_STATES: frozenset[CallState] = frozenset(("success", "error", "cancelled", "denied", "discarded"))
MAX_OUTPUT = 60_000
"""Characters of a result kept for display; of longer ones, the head and the tail are kept."""


class TranscriptBlock(Struct, eq=False, kw_only=True):
    """`key` is unique within a transcript. `version` counts changes, so that painters know when to paint again.

    `folded` is the user's choice; None uses the default of the kind.
    """

    key: str
    ts: float = 0.0
    version: int = 0
    folded: bool | None = None

    def touch(self) -> None:
        self.version += 1

    @property
    def is_animated(self) -> bool:
        """True if the block shows an elapsed time or spinner."""
        return False


class PromptBlock(TranscriptBlock, eq=False, kw_only=True):
    """What starts a turn. `is_injected`: sent into a running turn; `is_continuation`: /continue, without new text.

    `is_mail`: not a prompt of the user, but a message of another agent or the report of an ended process.
    """

    text: str
    mode: Mode
    is_injected: bool = False
    is_continuation: bool = False
    is_mail: bool = False
    images: tuple[Image, ...] = ()


class StreamedBlock(TranscriptBlock, eq=False, kw_only=True):
    """Text of the model that may still be streaming. Chunks are joined on access."""

    _text: str = ""
    _chunks: list[str] = field(default_factory=list[str])
    live: bool = False

    @property
    def text(self) -> str:
        if self._chunks:
            self._text = "".join([self._text, *self._chunks])
            self._chunks = []
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._text, self._chunks = text, []

    def append(self, text: str) -> None:
        self._chunks.append(text)


class ReasoningBlock(StreamedBlock, eq=False, kw_only=True):
    """`live` while streaming; then `seconds` is the duration, or 0 if unknown."""

    seconds: float = 0.0

    @property
    def is_animated(self) -> bool:
        return self.live


class AnswerBlock(StreamedBlock, eq=False, kw_only=True):
    interrupted: bool = False


class CallBlock(TranscriptBlock, eq=False, kw_only=True):
    """One tool call. `chars` counts the characters of arguments still being streamed; `tail` is the latest output.

    `view` is the result as shown to users, e.g. a diff; if empty, `result`, the text the model reads, is shown.
    `original_args` are the model's arguments if `changed_by` changed them. `redacted` names what was removed from the
    result. `explanation` says why the call was denied or discarded.
    """

    name: str
    state: CallState = "writing"
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    chars: int = 0
    description: str = ""
    started: float = 0.0
    duration_ms: int = 0
    tail: list[str] = field(default_factory=list[str])
    printed: int = 0
    result: str = ""
    view: str = ""
    note: str = ""
    for_user: str = ""
    aside: str = ""
    images: tuple[Image, ...] = ()
    is_speculative: bool = False
    original_args: dict[str, Any] | None = None
    changed_by: str = ""
    redacted: tuple[str, ...] = ()
    background: bool = False
    explanation: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in END_STATES

    @property
    def is_animated(self) -> bool:
        return self.state == "running"


class CommandBlock(TranscriptBlock, eq=False, kw_only=True):
    """A user shell command such as `!make test`."""

    command: str
    tail: list[str] = field(default_factory=list[str])
    output: str = ""
    live: bool = True

    @property
    def is_animated(self) -> bool:
        return self.live


class AgentBlock(TranscriptBlock, eq=False, kw_only=True):
    """A sub-agent, in place of the call that started it. `doing` is its latest activity; `answer` its report.

    `calls` counts the tool calls that ran, `denied` those that were not allowed to. `task_id` is its delegated task;
    `state` and `note`, a summary or a question, are those of that task.
    """

    task: str
    mode: Mode
    description: str = ""
    type: str = ""
    color: str = ""
    model: str = ""
    task_id: str = ""
    state: TaskState = "running"
    note: str = ""
    doing: str = ""
    calls: int = 0
    denied: int = 0
    reason: str = ""
    answer: str = ""
    ended: float = 0.0

    @property
    def is_animated(self) -> bool:
        return not self.reason and self.state in ACTIVE_STATES


class ProcessBlock(TranscriptBlock, eq=False, kw_only=True):
    """A background process. `status` is empty while it runs; `urls` has the ports it listens on, as in its record."""

    command: str
    description: str = ""
    status: str = ""
    code: int = 0
    output: str = ""
    ended: float = 0.0
    urls: dict[int, str] = field(default_factory=dict[int, str])


class NoticeBlock(TranscriptBlock, eq=False, kw_only=True):
    """A one-sentence message that is not part of the answer."""

    text: str
    level: Literal["info", "warn", "error"] = "info"


class SummaryBlock(TranscriptBlock, eq=False, kw_only=True):
    """A compaction: the model sees this summary instead of the older messages, which stay on the screen."""

    text: str
    tokens_before: int = 0
    tokens_after: int = 0


class EndBlock(TranscriptBlock, eq=False, kw_only=True):
    """The end of a turn, with its cost and error. `next_step` names the commands that help after the error."""

    reason: str
    error: str = ""
    hint: str = ""
    next_step: str = ""
    steps: int = 0
    cost_usd: float = 0.0
    duration_ms: int = 0


def shorten_output(text: str) -> str:
    """Cut the middle out of a text longer than `MAX_OUTPUT`."""
    if len(text) <= MAX_OUTPUT:
        return text
    half = MAX_OUTPUT // 2
    left = text.count("\n", half, len(text) - half)
    return f"{text[:half]}\n… {pluralize(left, 'line')} not shown …\n{text[-half:]}"


AnyBlock = TypeVar("AnyBlock", bound=TranscriptBlock)


class BlockList:
    """Blocks in screen order. `open_blocks` belong to the reply being streamed and may still be rolled back.

    Other blocks are inserted above the open reply. So a live transcript has the same order as one read from the log,
    which contains only finished replies.
    """

    def __init__(self) -> None:
        self.blocks: list[TranscriptBlock] = []
        self.open_blocks: list[TranscriptBlock] = []
        self.now = 0.0
        self._changed: set[TranscriptBlock] = set()
        self._is_reshaped = False
        self._count = 0

    def take_changes(self) -> tuple[set[TranscriptBlock], bool]:
        """Return the new and changed blocks, and whether blocks were removed or moved, since the last call."""
        changed, reshaped = self._changed, self._is_reshaped
        self._changed, self._is_reshaped = set(), False
        return changed, reshaped

    def make_key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def touch(self, block: TranscriptBlock) -> None:
        block.touch()
        self._changed.add(block)

    def write(self, block: AnyBlock) -> AnyBlock:
        """Append a block of the reply being streamed."""
        block.ts = self.now
        self.blocks.append(block)
        self.open_blocks.append(block)
        self._changed.add(block)
        return block

    def add(self, block: AnyBlock) -> AnyBlock:
        """Add a permanent block, above the reply being streamed."""
        block.ts = self.now
        self._changed.add(block)
        if self.open_blocks:
            self.blocks.insert(self._find_index(self.open_blocks[0]), block)
            self._is_reshaped = True
        else:
            self.blocks.append(block)
        return block

    def replace(self, old: TranscriptBlock, new: AnyBlock) -> AnyBlock:
        """Put a block in the place of another one."""
        new.ts = self.now
        place = self._find_index(old)
        self.blocks[place : place + 1] = [new]
        self.open_blocks = [new if block is old else block for block in self.open_blocks]
        self._changed.add(new)
        self._is_reshaped = True
        return new

    def _find_index(self, block: TranscriptBlock) -> int:
        for index in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[index] is block:
                return index
        return len(self.blocks)

    def drop(self, blocks: Iterable[TranscriptBlock]) -> None:
        gone = set(blocks)
        if gone:
            self.blocks = [block for block in self.blocks if block not in gone]
            self.open_blocks = [block for block in self.open_blocks if block not in gone]
            self._is_reshaped = True

    def finish(self, parts: list[TranscriptBlock], stay: list[TranscriptBlock]) -> None:
        """Replace the open blocks by the `parts` of the finished reply, followed by those that `stay`."""
        before, self.open_blocks = self.open_blocks, []
        for block in parts:
            self.touch(block)
        if before == parts:
            return
        first = self._find_index(before[0]) if before else len(self.blocks)
        gone = {*before, *parts}
        after = [block for block in self.blocks[first:] if block not in gone]
        self.blocks[first:] = [*parts, *stay, *after]
        self._is_reshaped = self._is_reshaped or bool(before) or bool(after)

    def cut(self, key: str) -> list[TranscriptBlock]:
        """Remove and return the block of that key and all blocks after it."""
        place = next((i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i].key == key), None)
        if place is None:
            return []
        gone = self.blocks[place:]
        self.blocks = self.blocks[:place]
        self._is_reshaped = True
        return gone

    def put_back(self, blocks: list[TranscriptBlock], in_place_of: TranscriptBlock) -> None:
        """Replace a block by blocks that were cut earlier."""
        place = self._find_index(in_place_of)
        self.blocks[place : place + 1] = blocks
        self._is_reshaped = True
