"""What the app tells about itself and its session, as text to read."""

from typing import TYPE_CHECKING

from rich.text import Text

from odin.ui.commands.spending import context_text, usage_text
from odin.ui.commands.state import DOCTOR, NO_SERVERS, SERVERS, facts
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.reading import Reading
from odin.ui.tui.palette import Palette
from odin.ui.tui.panels.amounts import tilde

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

_BAR = 60


def context(app: "OdinApp") -> Reading:
    async def write(colours: Palette, columns: int) -> Text:
        report = await app.client.context()
        lines = context_text(report).splitlines()
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

    return Reading("What fills the window", write)


def usage(app: "OdinApp") -> Reading:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(usage_text(await app.client.snapshot(), await app.client.info()), colours.text)

    return Reading("What this session has spent", write)


def servers(app: "OdinApp") -> Reading:
    async def write(colours: Palette, columns: int) -> Text:
        return Text(SERVERS, colours.text)

    return Reading("MCP servers", write)


def diagnostics(app: "OdinApp") -> Reading:
    """What is not as it should be, and what one would want to know then."""

    async def write(colours: Palette, columns: int) -> Text:
        info = await app.client.info()
        text = Text()
        if info.notice:
            text.append(f"{visible(info.notice)}\n\n", colours.warn)
        if info.warnings:
            text.append(f"{len(info.warnings)} {'warning' if len(info.warnings) == 1 else 'warnings'}\n", colours.warn)
            for warning in info.warnings:
                text.append(f"• {visible(warning)}\n", colours.text)
        else:
            text.append("No warnings.\n", colours.good)
        count = app.troubles.count
        key = app.keys.shown("errors")
        many = "1 error" if count == 1 else f"{count} errors"
        errors = f"{many} since Odin was started; {key} shows them." if count else "No errors since Odin was started."
        text.append(f"\n{errors}\n\n", colours.bad if count else colours.text)
        for name, value in facts(info):
            text.append(f"{name:<16}", colours.dim)
            text.append(f"{visible(tilde(value))}\n", colours.text)
        text.append(f"\n{NO_SERVERS}\n", colours.dim)
        text.append(DOCTOR, colours.dim)
        return text

    return Reading("Diagnostics", write)
