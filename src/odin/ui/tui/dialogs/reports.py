"""What the app tells about itself and its session, as text to read."""

from typing import TYPE_CHECKING

from rich.text import Text

from odin.ui.commands.spending import format_context, format_usage
from odin.ui.commands.state import DOCTOR_HINT, NO_LANGUAGE_SERVERS, NO_MCP_SERVERS, list_facts
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.reading import ReportDialog
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.amounts import shorten_home

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

_BAR = 60


def make_context_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        report = await app.client.report_context()
        lines = format_context(report).splitlines()
        text = Text().append(f"{lines[0]}\n", colours.strong)
        if report.limit:
            room = min(_BAR, columns)
            used = min(room, round(report.used / report.limit * room))
            at = min(room - 1, round(report.threshold / report.limit * room)) if report.threshold else -1
            for place in range(room):
                full = place < used
                sign = "█" if full else "┊" if place == at else "░"
                text.append(sign, colours.accent if full else colours.dim)
            text.append("\n")
        for line in lines[2 if report.limit else 1 :]:
            text.append(f"{line}\n", colours.text if line.startswith("  ") else colours.dim)
        return text

    return ReportDialog("What fills the window", write)


def make_usage_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(format_usage(await app.client.snapshot(), await app.client.get_info()), colours.text)

    return ReportDialog("What this session has spent", write)


def make_servers_report(app: "OdinApp") -> ReportDialog:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(NO_MCP_SERVERS, colours.text)

    return ReportDialog("MCP servers", write)


def make_diagnostics_report(app: "OdinApp") -> ReportDialog:
    """What is not as it should be, and what one would want to know then."""

    async def write(colours: Palette, columns: int) -> Text:
        info = await app.client.get_info()
        text = Text()
        if info.notice:
            text.append(f"{escape_hidden(info.notice)}\n\n", colours.warn)
        if info.warnings:
            text.append(f"{len(info.warnings)} {'warning' if len(info.warnings) == 1 else 'warnings'}\n", colours.warn)
            for warning in info.warnings:
                text.append(f"• {escape_hidden(warning)}\n", colours.text)
        else:
            text.append("No warnings.\n", colours.good)
        count = app.error_log.count
        key = app.keys.label_of("errors")
        many = "1 error" if count == 1 else f"{count} errors"
        errors = f"{many} since Odin was started; {key} shows them." if count else "No errors since Odin was started."
        text.append(f"\n{errors}\n\n", colours.bad if count else colours.text)
        for name, value in list_facts(info):
            text.append(f"{name:<16}", colours.dim)
            text.append(f"{escape_hidden(shorten_home(value))}\n", colours.text)
        text.append(f"\n{NO_LANGUAGE_SERVERS}\n", colours.dim)
        text.append(DOCTOR_HINT, colours.dim)
        return text

    return ReportDialog("Diagnostics", write)
