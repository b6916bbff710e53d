"""The conversation of one agent, as the messages its model is sent: valid for every provider at any moment."""

from collections.abc import Iterable

from odin.core.event import ToolEnded, TurnStarted
from odin.core.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from odin.session.summary import Cover, new_cover, shortened

INTERRUPTED = "Interrupted: this call did not finish, and what it changed before that is not known."
NOT_BEGUN = "Not run: the turn was interrupted before this call began."

Mark = tuple[list[Message], int]
"""A moment of a conversation: the list of messages then, and how many there were."""


class Thread:
    """The conversation of one agent with its model."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._open: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._begun: set[str] = set()
        self._sealed = False
        self._covers: list[Cover] = []

    def history(self) -> tuple[Message, ...]:
        closed = shortened(self._messages, self._covers)
        return (*closed, self._tool_message()) if self._open else closed

    def finished(self) -> tuple[Message, ...]:
        """The history without the calls that still run."""
        return shortened(self._messages, self._covers)

    def summarise(self, calls: Iterable[str], notes: Iterable[str]) -> None:
        """The newest reply asked for a summary, which takes the place of these results and notes."""
        cover = new_cover(self._messages, calls, notes)
        if cover is not None:
            self._covers.append(cover)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the newest reply that have no result yet."""
        return tuple(call for call in self._open if call.id not in self._results)

    def mark(self) -> Mark:
        """This moment, to go back to. The list it holds is never changed before that point."""
        self._close()
        return self._messages, len(self._messages)

    def back(self, mark: Mark) -> None:
        """Be as it was; a mark taken before this call still leads forward again."""
        messages, count = mark
        self._messages = messages[:count]
        self._open, self._results, self._begun, self._sealed = (), {}, set(), False

    def start(self, event: TurnStarted) -> None:
        self._close()
        self._messages.append(UserMessage(event.text, event.notes))
        self._sealed = False

    def reply(self, message: AssistantMessage) -> None:
        self._close()
        if not message.text.strip() and not message.calls:
            return
        self._messages.append(message)
        self._open = message.calls
        self._sealed = False

    def begin(self, call_id: str) -> None:
        """A call starts to run. Whether one that was interrupted may have changed something depends on that."""
        self._begun.add(call_id)

    def result(self, event: ToolEnded) -> None:
        if any(call.id == event.call_id for call in self._open) and event.call_id not in self._results:
            self._results[event.call_id] = ToolResult(
                event.call_id, event.text, event.status != "success", event.images
            )
            if len(self._results) == len(self._open):
                self._close()

    def note(self, text: str) -> None:
        """Tell the model something beside the newest message, or after it when that message has been sent already."""
        self._close()
        last = self._messages[-1] if self._messages else None
        if self._sealed or last is None or isinstance(last, AssistantMessage):
            self._messages.append(UserMessage(text))
        elif isinstance(last, UserMessage):
            self._messages[-1] = UserMessage(last.text, (*last.notes, text))
        else:
            self._messages[-1] = ToolMessage(last.results, (*last.notes, text))
        self._sealed = False

    def seal(self) -> None:
        self._sealed = True

    def _close(self) -> None:
        if self._open:
            self._messages.append(self._tool_message())
            self._open = ()
            self._results = {}
            self._begun = set()

    def _tool_message(self) -> ToolMessage:
        return ToolMessage(
            tuple(
                self._results.get(call.id) or ToolResult(call.id, self.unfinished(call.id), True) for call in self._open
            )
        )

    def unfinished(self, call_id: str) -> str:
        """What the model reads of an open call whose turn is over."""
        return INTERRUPTED if call_id in self._begun else NOT_BEGUN
