"""The things of a conversation that a person sees below each other. Plain data: nothing here knows a screen.

A block changes while it is being made; `version` says how often, so that whoever painted it knows when to do it again.

The blocks of a story in the order of the screen, and what changed among them since somebody last looked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from odin.core.event import Mode
from odin.core.message import Image

CallState = Literal["writing", "queued", "asking", "running", "success", "error", "cancelled", "denied", "discarded"]
"""A call that is `queued` may run and waits for its turn; nothing moves on the screen before it is `running`."""

END_STATES: frozenset[CallState] = frozenset(("success", "error", "cancelled", "denied", "discarded"))
MAX_OUTPUT = 60_000
"""Characters of one result that are kept for the screen; its head and its tail when there are more."""


@dataclass(slots=True, eq=False, kw_only=True)
class TranscriptBlock:
    """`key` names it within its story. `folded` is what the person chose; None leaves it to the kind of block."""

    key: str
    ts: float = 0.0
    version: int = 0
    folded: bool | None = None

    def touch(self) -> None:
        self.version += 1

    @property
    def is_animated(self) -> bool:
        """Whether it looks different with every second that passes."""
        return False


@dataclass(slots=True, eq=False, kw_only=True)
class PromptBlock(TranscriptBlock):
    """What a person said. `joined` into a running turn; `continues`: nobody said anything new."""

    text: str
    mode: Mode
    is_injected: bool = False
    is_continuation: bool = False
    images: tuple[Image, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class StreamedBlock(TranscriptBlock):
    """Words of the model, which may still be arriving: pieces are put together only when somebody looks."""

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


@dataclass(slots=True, eq=False, kw_only=True)
class ReasoningBlock(StreamedBlock):
    """`live` while it is thought; then `seconds` is how long it took, 0 when nobody knows."""

    seconds: float = 0.0

    @property
    def is_animated(self) -> bool:
        return self.live


@dataclass(slots=True, eq=False, kw_only=True)
class AnswerBlock(StreamedBlock):
    interrupted: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class CallBlock(TranscriptBlock):
    """One call of a tool. `chars` counts what has arrived of arguments that are still being written.

    `tail` is what it printed last. `view` is what people see of the result, a diff or a list; where there is none it is
    `result`, what the model reads.
    `asked` are the arguments the model chose when others ran, changed by `changed_by`; `redacted` what was taken out of
    the result. `why` says why it was denied or does not count.
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


@dataclass(slots=True, eq=False, kw_only=True)
class CommandBlock(TranscriptBlock):
    """A command of the person's own, `!make test`."""

    command: str
    tail: list[str] = field(default_factory=list[str])
    output: str = ""
    live: bool = True

    @property
    def is_animated(self) -> bool:
        return self.live


@dataclass(slots=True, eq=False, kw_only=True)
class AgentBlock(TranscriptBlock):
    """A sub-agent at work. `doing` is what it did last, `answer` the beginning of what it found."""

    task: str
    mode: Mode
    doing: str = ""
    calls: int = 0
    reason: str = ""
    answer: str = ""
    ended: float = 0.0

    @property
    def is_animated(self) -> bool:
        return not self.reason


@dataclass(slots=True, eq=False, kw_only=True)
class ProcessBlock(TranscriptBlock):
    """A process in the background. `status` is empty while it runs."""

    command: str
    description: str = ""
    status: str = ""
    code: int = 0
    output: str = ""
    ended: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class NoticeBlock(TranscriptBlock):
    """One calm sentence about something beside the answer."""

    text: str
    level: Literal["info", "warn", "error"] = "info"


@dataclass(slots=True, eq=False, kw_only=True)
class SummaryBlock(TranscriptBlock):
    """The older part of the conversation was replaced by this for the model; the person still sees it all above."""

    text: str
    tokens_before: int = 0
    tokens_after: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class EndBlock(TranscriptBlock):
    """How a turn ended, when there is more to say than that it did."""

    reason: str
    error: str = ""
    hint: str = ""
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    duration_ms: int = 0


def shorten_output(text: str) -> str:
    """The text without its middle when it is longer than a screen could need."""
    if len(text) <= MAX_OUTPUT:
        return text
    half = MAX_OUTPUT // 2
    left = text.count("\n", half, len(text) - half)
    return f"{text[:half]}\n… {left:,} lines are not shown here …\n{text[-half:]}"


AnyBlock = TypeVar("AnyBlock", bound=TranscriptBlock)


class BlockList:
    """`open` are the blocks of the reply that is being written: provisional until it is finished or taken back.

    What is said beside a reply stands above it, whether it was still being written at that moment or read from the log,
    which knows only finished replies.
    """

    def __init__(self) -> None:
        self.blocks: list[TranscriptBlock] = []
        self.open_blocks: list[TranscriptBlock] = []
        self.now = 0.0
        self._changed: set[TranscriptBlock] = set()
        self._is_reshaped = False
        self._count = 0

    def take_changes(self) -> tuple[set[TranscriptBlock], bool]:
        """The blocks that changed or came, and whether blocks went or moved; it is forgotten with this."""
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
        """A part of the reply that is being written, at the end."""
        block.ts = self.now
        self.blocks.append(block)
        self.open_blocks.append(block)
        self._changed.add(block)
        return block

    def add(self, block: AnyBlock) -> AnyBlock:
        """Something that stays, above the reply that is being written."""
        block.ts = self.now
        self._changed.add(block)
        if self.open_blocks:
            self.blocks.insert(self._index_of(self.open_blocks[0]), block)
            self._is_reshaped = True
        else:
            self.blocks.append(block)
        return block

    def _index_of(self, block: TranscriptBlock) -> int:
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
        """The reply is finished: `parts` take the place of what was open, and of that `stay` stays behind them."""
        before, self.open_blocks = self.open_blocks, []
        for block in parts:
            self.touch(block)
        if before == parts:
            return
        first = self._index_of(before[0]) if before else len(self.blocks)
        gone = {*before, *parts}
        after = [block for block in self.blocks[first:] if block not in gone]
        self.blocks[first:] = [*parts, *stay, *after]
        self._is_reshaped = self._is_reshaped or bool(before) or bool(after)

    def cut(self, key: str) -> list[TranscriptBlock]:
        """Take away the block of that key and all after it."""
        place = next((i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i].key == key), None)
        if place is None:
            return []
        gone = self.blocks[place:]
        self.blocks = self.blocks[:place]
        self._is_reshaped = True
        return gone

    def put_back(self, blocks: list[TranscriptBlock], in_place_of: TranscriptBlock) -> None:
        """Blocks that were cut away come back where this one stands."""
        place = self._index_of(in_place_of)
        self.blocks[place : place + 1] = blocks
        self._is_reshaped = True
