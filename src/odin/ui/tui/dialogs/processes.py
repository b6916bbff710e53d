"""The background processes: list them, read and follow their output, stop them, and open their ports."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text

from odin.core.call_events import SpawnFinished, SpawnListening, SpawnStarted
from odin.core.client import ProcessRecord
from odin.core.format import format_duration
from odin.core.op import ControlProcess
from odin.ui.clean_text import sanitize
from odin.ui.slash_commands.processes import NO_PROCESSES, describe_port, describe_process, find_process
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.reports import ReportDialog, Sheet
from odin.ui.tui.dialogs.widgets import RowContent
from odin.ui.tui.palette import Palette
from odin.ui.tui.session_app import SessionApp


class ProcessesDialog(PickerDialog[ProcessRecord]):
    """Enter shows the output of a process, and follows it."""

    KEY_SCOPES = ("processes", "list", "dialog")
    HEADING = "Background processes"
    EMPTY_TEXT = NO_PROCESSES
    STARTS_IN_FILTER = False
    ENTER_LABEL = "follow output"
    RELOAD_ON = (SpawnStarted, SpawnFinished, SpawnListening)
    ACTIONS: ClassVar[dict[str, str]] = {"stop_process": "stop", "open_port": "open port"}

    async def load(self) -> Sequence[ProcessRecord]:
        return await self.odin.client.list_processes()

    def get_filter_text(self, item: ProcessRecord) -> str:
        return f"{item.id} {item.command} {item.description} {item.status}".casefold()

    def draw(self, item: ProcessRecord) -> RowContent:
        colors = self.palette
        styles = {"running": colors.accent, "failed": colors.bad, "timed_out": colors.bad}
        line = Text().append(f"{'▶' if item.status == 'running' else '■'} ", styles.get(item.status, colors.dim))
        line.append(f"{item.id} {escape_hidden(item.description or item.command)}", colors.text)
        has_code = item.status in ("finished", "failed") and item.code >= 0
        state = f"exit code {item.code}" if has_code else item.status.replace("_", " ")
        ports = (describe_port(item.id, port, url) for port, url in item.urls.items())
        return line, (state, *ports, format_duration(item.seconds))

    async def describe(self, item: ProcessRecord) -> Text:
        return await _write_output(self.odin, self.palette, item)

    async def choose(self, item: ProcessRecord) -> None:
        self.odin.push_screen(ProcessOutputDialog(item))

    async def act(self, name: str, item: ProcessRecord | None) -> None:
        if item is not None:
            stops = name == "stop_process"
            if not await self.odin.client.submit(ControlProcess("stop" if stops else "open", item.id)) and not stops:
                self.odin.show_toast("Its ports are open.")
            await self.reload(self.rows.mark)


class ProcessOutputDialog(ReportDialog):
    """The output of a process. It follows new output while its end is in view."""

    def __init__(self, record: ProcessRecord) -> None:
        super().__init__(escape_hidden(f"{record.id} {record.description or record.command}"), self._write)
        self._record = record

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._follow, group="follow")

    async def _write(self, app: SessionApp, colors: Palette, columns: int) -> Text:
        self._record = await find_process(app.client, self._record.id)
        return await _write_output(app, colors, self._record)

    async def _fill(self) -> None:
        sheet = self.query_one(Sheet)
        is_at_end = sheet.scroll_y >= sheet.max_scroll_y
        await super()._fill()
        if is_at_end:
            self.call_after_refresh(sheet.scroll_end, animate=False)

    async def _follow(self) -> None:
        while self._record.status == "running":
            await asyncio.sleep(self.odin.timing.follow_s)
            self.refill()


async def _write_output(app: SessionApp, colors: Palette, record: ProcessRecord) -> Text:
    output = await app.client.read_process(record.id)
    text = Text().append(f"{escape_hidden(record.command)}\n", colors.strong)
    text.append(f"{describe_process(record)}\n", colors.dim)
    for port, url in record.urls.items():
        text.append(f"{describe_port(record.id, port, url)}\n", colors.accent if url else colors.dim)
    nothing = "It has printed nothing yet." if record.status == "running" else "It printed nothing."
    text.append(sanitize(output.text).rstrip() or nothing, colors.text)
    return text
