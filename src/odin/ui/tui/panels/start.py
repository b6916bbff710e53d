"""The start screen: name, version, model, directory, sandbox and three tips, until the first prompt."""

from rich.text import Text

from odin.core.client import SessionInfo
from odin.core.format import shorten_home
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.panel import Panel, PanelRow, make_text

FULL_HEIGHT, SHORT_HEIGHT = 18, 12
"""From how many rows of the screen on everything is shown, or only the facts."""


class StartPanel(Panel):
    DEFAULT_CSS = """
    StartPanel { padding: 0 2; }
    """

    def fit(self, rows: int) -> None:
        self.styles.height = rows

    def build_rows(self, width: int) -> list[PanelRow]:
        info, height = self.facts.info, self.odin.size.height
        if info is None or self.facts.has_prompts or height < SHORT_HEIGHT:
            return []
        rows = _build_facts(info, self.facts.chosen_model, self.palette, width)
        if height >= FULL_HEIGHT:
            tips = (make_text(f"• {tip}", self.palette.dim, width) for tip in list_tips(self.odin.keys))
            rows += [Text(""), *tips, Text("")]
        return [PanelRow(row) for row in rows]


def _build_facts(info: SessionInfo, model: str, palette: Palette, width: int) -> list[Text]:
    branch = f" ({info.branch})" if info.branch else ""
    rows = [Text.assemble(("Odin", palette.user), (f" {info.version}", palette.dim), no_wrap=True, end="")]
    for label, value in (
        ("model", model),
        ("directory", f"{shorten_home(info.cwd)}{branch}"),
        ("sandbox", info.sandbox or "none"),
    ):
        line = Text.assemble((f"{label:<11}", palette.dim), no_wrap=True, end="")
        rows.append(line.append_text(make_text(value, palette.text, max(width - 11, 1))))
    return rows


def list_tips(keys: KeyTable) -> tuple[str, ...]:
    """Return the tips, with the keys that the user has set. Each fits in 60 columns."""
    mode, permissions = keys.label_of("next_mode"), keys.label_of("permissions")
    return (
        "Describe a task. @ mentions a file, ! runs a command.",
        f"{mode} switches the mode, {permissions} the permission mode.",
        f"/ lists commands, {keys.label_of('help')} the keys. /init writes AGENTS.md.",
    )
