"""Card mode: the keyboard moves between the cards of the conversation instead of writing a prompt.

Only a key starts it, never a click, so letters always reach the composer unless the user asked for card keys.
"""

from rich.text import Text
from textual import events

from odin.ui.transcript.blocks import AgentBlock
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.queue import QueuePanel
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.panel import Panel, PanelRow, align_sides, make_text
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.transcript import TranscriptView

_HINTS = (
    (("previous_card", "next_card"), "move"),
    (("fold",), "open"),
    (("copy_card",), "copy"),
    (("edit_prompt",), "edit in a copy"),
    (("search",), "search"),
    (("help_here",), "all keys"),
)
"""The most useful keys first; a narrow screen shows fewer of them."""

_AGENT_HINTS = ((("open_agent",), "its transcript"),)


class CardHints(Panel):
    """One row below the transcript in card mode: the keys that work there, and the key that leads back."""

    DEFAULT_CSS = """
    CardHints { padding: 0 1; background: $surface; }
    """

    def fit(self, rows: int) -> None:
        self.styles.height = rows

    def build_rows(self, width: int) -> list[PanelRow]:
        transcript = self.odin.query_one(TranscriptView)
        if not transcript.has_focus:
            return []
        keys, palette = self.odin.keys, self.palette
        leave = _format_hint(palette, keys.get_label("write" if self.odin.settings.vim else "stop"), "back")
        line = make_text("Cards:", palette.accent)
        hints = (*_AGENT_HINTS, *_HINTS) if isinstance(transcript.cursor, AgentBlock) else _HINTS
        for names, word in hints:
            hint = _format_hint(palette, "/".join(keys.get_label(name, typing=True) for name in names), word)
            if line.cell_len + hint.cell_len + leave.cell_len > width:
                break
            line.append_text(hint)
        return [PanelRow(align_sides(line, leave, width), ("write",))]


def _format_hint(palette: Palette, key: str, word: str) -> Text:
    return Text.assemble("  ", (key, palette.strong), (f" {word}", palette.dim))


def route_input(app: SessionApp, event: events.Event) -> None:
    """Move the focus to the composer for a paste, or a key that types a character and means nothing to the cards.

    This happens before the key is forwarded, so that keys typed after it cannot overtake it.
    """
    widget = app.screen_stack[0].focused
    if not isinstance(widget, TranscriptView | QueuePanel):
        return
    types = (
        isinstance(event, events.Key) and event.is_printable and not app.keys.find_action(event.key, widget.KEY_SCOPE)
    )
    if types or isinstance(event, events.Paste):
        app.screen_stack[0].set_focus(app.query_one(Composer))
