"""How a reply of the model becomes blocks: piece by piece while it streams, and as a whole when it is finished."""

from odin.core.event import (
    CallStreamed,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
)
from odin.core.message import Thinking, ToolCall
from odin.ui.tui.story.block import AnswerBlock, CallBlock, ReasoningBlock, TranscriptBlock
from odin.ui.tui.story.calls import CallBlocks
from odin.ui.tui.story.page import BlockList


class ReplyBlocks:
    """The reply that is being written. A call that has begun early is more than words and outlives a rollback."""

    def __init__(self, blocks: BlockList, calls: CallBlocks) -> None:
        self._blocks = blocks
        self._calls = calls

    def start_thinking(self, event: ThinkingStarted) -> None:
        self._blocks.write(ReasoningBlock(key=self._blocks.make_key("thinking"), live=True))

    def append_thinking(self, event: ThinkingStreamed) -> None:
        block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
        if not isinstance(block, ReasoningBlock) or not block.live:
            block = self._blocks.write(ReasoningBlock(key=self._blocks.make_key("thinking"), live=True))
        block.append(event.text)
        self._blocks.touch(block)

    def end_thinking(self, event: ThinkingEnded) -> None:
        for block in reversed(self._blocks.open_blocks):
            if isinstance(block, ReasoningBlock) and block.live:
                block.text, block.seconds, block.live = event.text, event.seconds, False
                self._blocks.touch(block)
                return

    def append_text(self, event: TextStreamed) -> None:
        block = self._blocks.open_blocks[-1] if self._blocks.open_blocks else None
        if not isinstance(block, AnswerBlock):
            block = self._blocks.write(AnswerBlock(key=self._blocks.make_key("answer"), live=True))
        block.append(event.text)
        self._blocks.touch(block)

    def update_call(self, event: CallStreamed) -> None:
        block = self._calls.find(event.call_id)
        if block is None:
            block = self._calls.register(self._blocks.write(CallBlock(key=event.call_id, name=event.name)))
        block.name = event.name or block.name
        block.chars = event.chars
        if event.done and block.state == "writing":
            block.args, block.chars = event.args, 0
        self._blocks.touch(block)

    def rollback(self, event: ReplyRolledBack | ReplyDiscarded) -> None:
        self.drop_open()

    def drop_open(self) -> None:
        """What was only written goes; what was begun stays until it is known what becomes of it."""
        gone = [block for block in self._blocks.open_blocks if not _is_speculative(block)]
        self._calls.forget(gone)
        self._blocks.drop(gone)

    def end(self) -> None:
        """The turn is over: what was never finished was never said."""
        self.drop_open()
        self._blocks.open_blocks.clear()

    def finish(self, event: Replied) -> list[TranscriptBlock]:
        """Provisional blocks become the parts of the reply, in its order."""
        message = event.message
        before = self._blocks.open_blocks
        thoughts = [block for block in before if isinstance(block, ReasoningBlock)]
        answers = [block for block in before if isinstance(block, AnswerBlock)]
        parts: list[TranscriptBlock] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._declare_call(part))
            elif isinstance(part, Thinking):
                thought = thoughts.pop(0) if thoughts else ReasoningBlock(key=self._blocks.make_key("thinking"))
                thought.text, thought.live = part.text, False
                parts += [thought] if part.text.strip() else []
            else:
                answer = answers.pop(0) if answers else AnswerBlock(key=self._blocks.make_key("answer"))
                answer.text, answer.live, answer.interrupted = part.text, False, message.interrupted
                parts += [answer] if part.text.strip() else []
        for block in parts:
            block.ts = block.ts or self._blocks.now
        rest = [block for block in before if block not in parts]
        stay = [block for block in rest if _is_speculative(block)]
        self._calls.forget(block for block in rest if block not in stay)
        self._blocks.finish(parts, stay)
        return parts

    def _declare_call(self, part: ToolCall) -> CallBlock:
        """A call that the finished reply makes; it may have begun before."""
        block = self._calls.find(part.id) or self._calls.register(CallBlock(key=part.id, name=part.name))
        block.chars, block.args = 0, part.args
        if block.state == "writing":
            block.state = "queued"
        return block


def _is_speculative(block: TranscriptBlock) -> bool:
    return isinstance(block, CallBlock) and block.is_speculative
