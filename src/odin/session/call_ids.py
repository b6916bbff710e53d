"""Call ids: no two calls of a log have the same one, whichever agents make them, for as long as the log lives.

Chats, editors and programs know a call by its id alone. Model servers promise less: some count from 1 in each reply,
some give no ids, and none knows the calls that a compaction or a rewind has taken out of its sight, or those of other
agents. So the id of a call is chosen against the whole log: the server's own if no other call has it.

Logs of earlier versions, in which only the ids of one request were unique, get theirs made unique while they are read,
always the same way. Thinking that is bound to what was sent with other ids is left out where requests are encoded, as
after any other change of what comes before it.
"""

from functools import cache
from typing import ClassVar, get_args

from msgspec.structs import replace

from odin.core.call_events import CallDiscarded, CallSpeculated, CallStreamed, Replied, ReplyDiscarded, ReplyRolledBack
from odin.core.event import AgentStarted, AnyEvent, ContextSummarized, Envelope, ResultsPruned, TurnEnded
from odin.core.message import ToolCall

_MAX_CHARS = 40
"""OpenAI takes no longer id, and none of the APIs takes other characters than letters, digits, `_` and `-`."""


class CallIds:
    """The ids that are taken. Those of a reply that is streamed again are free again unless a call has started."""

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (CallStreamed, CallSpeculated, Replied, ReplyRolledBack, ReplyDiscarded, TurnEnded)
    )

    def __init__(self) -> None:
        self._recorded: set[str] = set()
        self._streaming: dict[str, set[str]] = {}

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        match event:
            case CallStreamed():
                self._streaming.setdefault(agent, set()).add(event.call_id)
            case CallSpeculated():
                self.add(event.call_id)
            case Replied():
                for call in event.message.calls:
                    self.add(call.id)
                self._streaming.pop(agent, None)
            case _:
                self._streaming.pop(agent, None)

    def add(self, call_id: str) -> None:
        self._recorded.add(call_id)

    def choose(self, wanted: str) -> str:
        """Return an id for a new call that every API accepts: `wanted` if possible."""
        wanted = "".join(char for char in wanted if char.isascii() and (char.isalnum() or char in "_-"))[:_MAX_CHARS]
        if wanted and not self.is_taken(wanted):
            return wanted
        number = len(self._recorded) + sum(map(len, self._streaming.values()))
        while self.is_taken(chosen := f"{wanted[: _MAX_CHARS - 10]}-{number}" if wanted else f"call_{number}"):
            number += 1
        return chosen

    def is_taken(self, call_id: str) -> bool:
        return call_id in self._recorded or any(call_id in ids for ids in self._streaming.values())


_NAMING_EVENTS = frozenset((Replied, CallSpeculated, CallDiscarded))


class LoggedCallIds:
    """Makes the call ids of a log unique, event by event from its beginning."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._speculated: dict[tuple[str, str], str] = {}
        """By agent and id in the log: the ids of calls whose reply is not complete."""
        self._changed: dict[tuple[str, str], list[str]] = {}
        """By agent and id in the log: the ids of all calls that have it there, the newest last."""

    def apply(self, envelope: Envelope) -> Envelope:
        """Return the event with the ids that its calls have for every reader."""
        event, agent = envelope.event, envelope.agent
        if not self._changed and type(event) not in _NAMING_EVENTS:  # most events of most logs
            return envelope
        if isinstance(event, Replied):
            event = self._read_reply(event, agent)
        elif isinstance(event, CallSpeculated):
            chosen = self._speculated[agent, event.call_id] = self._add_call(event.call_id, agent)
            event = event if chosen == event.call_id else replace(event, call_id=chosen)
        else:
            if isinstance(event, CallDiscarded):
                self._speculated.pop((agent, event.call_id), None)
            if self._changed:
                event = self._read_mention(event, agent)
        return envelope if event is envelope.event else replace(envelope, event=event)

    def _read_reply(self, event: Replied, agent: str) -> Replied:
        names = [self._name_call(call, agent) for call in event.message.calls]
        if names == [call.id for call in event.message.calls]:
            return event
        left = iter(names)
        parts = [replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in event.message.parts]
        return Replied(replace(event.message, parts=tuple(parts)))

    def _name_call(self, call: ToolCall, agent: str) -> str:
        return self._speculated.pop((agent, call.id), "") or self._add_call(call.id, agent)

    def _add_call(self, call_id: str, agent: str) -> str:
        chosen = call_id
        if self._ids.is_taken(call_id):
            chosen = self._ids.choose(call_id)
            self._changed.setdefault((agent, call_id), [call_id]).append(chosen)
        self._ids.add(chosen)
        return chosen

    def _read_mention(self, event: AnyEvent, agent: str) -> AnyEvent:
        """Return an event that names calls: the newest that has the id, or all that the agent's model has seen."""
        if isinstance(event, ContextSummarized | ResultsPruned):
            calls = [new for old in event.calls for new in self._changed.get((agent, old), (old,))]
            return replace(event, calls=tuple(calls)) if len(calls) > len(event.calls) else event
        if type(event) not in _list_naming_events():
            return event
        owner, call_id = event.owner if isinstance(event, AgentStarted) else agent, str(getattr(event, "call_id", ""))
        found = self._changed.get((owner, call_id))
        return replace(event, call_id=found[-1]) if found else event


@cache
def _list_naming_events() -> frozenset[type]:
    return frozenset(kind for kind in get_args(AnyEvent) if "call_id" in kind.__struct_fields__)
