"""How a reply of the model becomes blocks: piece by piece while it streams, and as a whole when it is finished."""

from odin.core.event import (
    CallStreamed,
    Replied,
    ReplyDiscarded,
    RolledBack,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
)
from odin.core.message import Thinking, ToolCall
from odin.ui.tui.story.block import AnswerBlock, Block, CallBlock, ThinkingBlock
from odin.ui.tui.story.calls import Calls
from odin.ui.tui.story.page import Page


class Reply:
    """The reply that is being written. A call that has begun early is more than words and outlives a rollback."""

    def __init__(self, page: Page, calls: Calls) -> None:
        self._page = page
        self._calls = calls

    def thinking_started(self, event: ThinkingStarted) -> None:
        self._page.write(ThinkingBlock(key=self._page.key("thinking"), live=True))

    def thinking_streamed(self, event: ThinkingStreamed) -> None:
        block = self._page.open[-1] if self._page.open else None
        if not isinstance(block, ThinkingBlock) or not block.live:
            block = self._page.write(ThinkingBlock(key=self._page.key("thinking"), live=True))
        block.append(event.text)
        self._page.touch(block)

    def thinking_ended(self, event: ThinkingEnded) -> None:
        for block in reversed(self._page.open):
            if isinstance(block, ThinkingBlock) and block.live:
                block.text, block.seconds, block.live = event.text, event.seconds, False
                self._page.touch(block)
                return

    def text_streamed(self, event: TextStreamed) -> None:
        block = self._page.open[-1] if self._page.open else None
        if not isinstance(block, AnswerBlock):
            block = self._page.write(AnswerBlock(key=self._page.key("answer"), live=True))
        block.append(event.text)
        self._page.touch(block)

    def call_streamed(self, event: CallStreamed) -> None:
        block = self._calls.known(event.call_id)
        if block is None:
            block = self._calls.keep(self._page.write(CallBlock(key=event.call_id, name=event.name)))
        block.name = event.name or block.name
        block.chars = event.chars
        if event.done and block.state == "writing":
            block.args, block.chars = event.args, 0
        self._page.touch(block)

    def taken_back(self, event: RolledBack | ReplyDiscarded) -> None:
        self.drop()

    def drop(self) -> None:
        """What was only written goes; what was begun stays until it is known what becomes of it."""
        gone = [block for block in self._page.open if not _begun(block)]
        self._calls.forget(gone)
        self._page.drop(gone)

    def over(self) -> None:
        """The turn is over: what was never finished was never said."""
        self.drop()
        self._page.open.clear()

    def finished(self, event: Replied) -> list[Block]:
        """Provisional blocks become the parts of the reply, in its order."""
        message = event.message
        before = self._page.open
        thoughts = [block for block in before if isinstance(block, ThinkingBlock)]
        answers = [block for block in before if isinstance(block, AnswerBlock)]
        parts: list[Block] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._declared(part))
            elif isinstance(part, Thinking):
                thought = thoughts.pop(0) if thoughts else ThinkingBlock(key=self._page.key("thinking"))
                thought.text, thought.live = part.text, False
                parts += [thought] if part.text.strip() else []
            else:
                answer = answers.pop(0) if answers else AnswerBlock(key=self._page.key("answer"))
                answer.text, answer.live, answer.interrupted = part.text, False, message.interrupted
                parts += [answer] if part.text.strip() else []
        for block in parts:
            block.ts = block.ts or self._page.now
        rest = [block for block in before if block not in parts]
        stay = [block for block in rest if _begun(block)]
        self._calls.forget(block for block in rest if block not in stay)
        self._page.finish(parts, stay)
        return parts

    def _declared(self, part: ToolCall) -> CallBlock:
        """A call that the finished reply makes; it may have begun before."""
        block = self._calls.known(part.id) or self._calls.keep(CallBlock(key=part.id, name=part.name))
        block.chars, block.args = 0, part.args
        if block.state == "writing":
            block.state = "queued"
        return block


def _begun(block: Block) -> bool:
    return isinstance(block, CallBlock) and block.early
