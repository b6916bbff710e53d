"""The events of sub-agents as lines of plain mode, each with the name of its agent."""

from collections.abc import Sequence
from typing import TextIO

from odin.core.call_events import Replied, ToolStarted
from odin.core.event import AgentEnded, AgentStarted, AnyEvent, Envelope, LoopChanged
from odin.core.team import STATE_WORDS, MailSent, TaskChanged
from odin.core.tool import get_display_name
from odin.ui.progress import EventLines
from odin.ui.slash_commands.sessions import LOOP_ENDS, describe_loop_end
from odin.ui.terminal import TextPainter, escape_hidden, get_terminal_size, wrap_words, write_text


class AgentLines:
    """Formats what sub-agents do. While a turn of the main agent is shown, that shows tool calls and warnings."""

    def __init__(self) -> None:
        self._colors: dict[str, str] = {}
        self._event_lines = EventLines(failures=True)
        self._delegated: set[str] = set()

    def format_lines(self, envelope: Envelope, *, focus: str, in_turn: bool) -> list[str]:
        """Return the lines for an event. The replies of the agent in `focus` are shown completely."""
        event, agent = envelope.event, envelope.agent
        if isinstance(event, AgentStarted):
            self._colors[event.id] = event.color
            if event.task_id:
                self._delegated.add(event.id)
            return _add_name(event.id, [f"started: {_get_first_line(event.description or event.task)}"])
        if isinstance(event, AgentEnded):
            return [] if event.id in self._delegated else _add_name(event.id, [f"ended ({event.reason})"])
        if not agent:
            return []
        lines = self._describe(event, is_focused=agent == focus)
        if not in_turn and not lines:
            lines = self._describe_work(envelope)
        return _add_name(agent, lines)

    def write(self, err: TextIO, line: str) -> None:
        """Write one of these lines with the name of its agent in its color, and what it does dimmed."""
        name, bracket, rest = line.partition("]")
        painter, agent = TextPainter(err), name.removeprefix("[")
        text = wrap_words(line, get_terminal_size(err)[0]) if err.isatty() else line
        if bracket and agent in self._colors and text.startswith(f"{name}]"):
            rest = text.removeprefix(f"{name}]")
            rest = painter.paint(rest, "dim") if rest.startswith(" · ") else rest
            text = f"{painter.paint_name(f'{name}]', self._colors[agent])}{rest}"
        write_text(err, f"{text}\n")

    def _describe(self, event: AnyEvent, *, is_focused: bool) -> list[str]:
        match event:
            case TaskChanged(state=state) if state != "running":
                said = event.summary or event.reason or event.stall
                first, *rest = f"{STATE_WORDS[state]}: {said}".rstrip(": ").splitlines()
                return [first, *(f"  {line}" for line in rest)]
            case LoopChanged(state=state, reason=reason) if state in LOOP_ENDS:
                return [describe_loop_end(state, reason)]
            case MailSent(kind=kind, text=text) if kind != "message":
                return [f"{kind.replace('_', ' ')}: {_get_first_line(text)}"]
            case Replied(message=message) if is_focused and message.text.strip():
                return message.text.strip().splitlines()
            case _:
                return []

    def _describe_work(self, envelope: Envelope) -> list[str]:
        if isinstance(envelope.event, ToolStarted):
            return [f"· {get_display_name(envelope.event.name)} {envelope.event.description}".rstrip()]
        line = self._event_lines.format_line(envelope)
        return [line.removeprefix(f"[{envelope.agent}] ")] if line else []


def _add_name(agent: str, lines: Sequence[str]) -> list[str]:
    return [escape_hidden(f"[{agent}] {line}") for line in lines]


def _get_first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
