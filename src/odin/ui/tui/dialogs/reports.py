"""Dialogs to read: text reports (context, usage, diagnostics, uncommitted changes), the last errors, and help."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partialmethod
from itertools import islice
from typing import ClassVar, Literal

from msgspec import Struct
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from odin.core.client import ChangedFile, CustomCommand
from odin.core.errors import OdinError
from odin.core.format import pluralize
from odin.core.slash_commands import SLASH_COMMANDS, SlashCommand
from odin.ui.clean_text import sanitize
from odin.ui.slash_commands.agents import format_agents
from odin.ui.slash_commands.extensions import format_language_servers, format_memory, format_plugins, format_skills
from odin.ui.slash_commands.reports import (
    DOCTOR_HINT,
    NO_CHANGES,
    ErrorEntry,
    describe_changed_file,
    format_context,
    format_usage,
    gather_status,
    list_facts,
    summarize_changes,
)
from odin.ui.terminal import escape_hidden, shorten_home
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import Hints, RowContent
from odin.ui.tui.keys import KeyAction, KeyScope, KeyTable, format_key, make_scroll_action
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.diff import paint_diff
from odin.ui.tui.palette import Palette, get_palette
from odin.ui.tui.session_app import SessionApp


class Sheet(VerticalScroll, inherit_bindings=False):
    """A scrollable area without key bindings; the dialog handles the keys."""

    DEFAULT_CSS = """
    Sheet { scrollbar-size-vertical: 1; background: $surface; }
    Sheet { scrollbar-background: $surface; scrollbar-background-hover: $surface; }
    """


ROOMY_HEIGHT = 18
"""On screens with at least this many rows the dialog leaves part of the conversation visible."""

ReportWriter = Callable[[SessionApp, Palette, int], Awaitable[Text]]
"""Writes the text for a palette and a width."""


class ReportDialog(Dialog[str]):
    """Shows the text of a writer, which is called again when the size changes."""

    KEY_SCOPES = ("reading", "dialog")
    DEFAULT_CSS = """
    ReportDialog Sheet { height: auto; }
    ReportDialog > .panel { max-height: 100%; }
    ReportDialog #text { width: 100%; height: auto; }
    """

    def __init__(self, head: str | Static, write: ReportWriter) -> None:
        super().__init__()
        self._heading = Static(head, classes="title", markup=False) if isinstance(head, str) else head
        self._writer = write
        self._hints = Hints()
        self._text = Text()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield self._heading
            with Sheet(id="scroll"):
                yield Static("", id="text", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
        self._hints.show(self.list_hints(self.odin.keys))

    def list_hints(self, keys: KeyTable) -> Sequence[tuple[str, str, str]]:
        return [("read_copy", keys.get_label("read_copy"), "copy"), ("close", keys.get_label("close"), "close")]

    def on_resize(self) -> None:
        room = self.size.height * (85 if self.size.height >= ROOMY_HEIGHT else 100) // 100
        self.query_one("#scroll").styles.max_height = max(room - 3, 1)
        self.refill()

    def refill(self) -> None:
        self.run_worker(self._fill, exclusive=True)

    async def _fill(self) -> None:
        try:
            self._text = await self._writer(self.odin, get_palette(self), max(self.size.width - 3, 10))
        except OdinError as error:
            self._text = Text(sanitize(error.describe()), get_palette(self).bad)
        self.query_one("#text", Static).update(self._text)

    async def action_do(self, name: str) -> None:
        """Run the action of a clicked hint."""
        await self.run_action(name)

    def action_read_copy(self) -> None:
        self.odin.copy_to_clipboard(self._text.plain)
        self.odin.show_toast("Copied.")

    def action_read_close(self) -> None:
        self.action_close()

    action_read_first = make_scroll_action(Sheet, "scroll_home")
    action_read_last = make_scroll_action(Sheet, "scroll_end")

    def _scroll(self, by: int, *, pages: bool = False) -> None:
        sheet = self.query_one(Sheet)
        sheet.scroll_relative(y=by * max(sheet.size.height - 1, 1) if pages else by, animate=False)

    action_read_down = partialmethod(_scroll, 1)
    action_read_up = partialmethod(_scroll, -1)
    action_read_page_down = partialmethod(_scroll, 1, pages=True)
    action_read_page_up = partialmethod(_scroll, -1, pages=True)


_BAR = 60


async def _write_context(app: SessionApp, colors: Palette, columns: int) -> Text:
    report = await app.client.report_context()
    lines = format_context(report).splitlines()
    text = Text().append(f"{lines[0]}\n", colors.strong)
    if report.limit:
        room = min(_BAR, columns)
        used = min(room, round(report.used / report.room * room))
        at = min(room - 1, round(report.threshold / report.room * room)) if report.threshold else -1
        for place in range(room):
            full = place < used
            sign = "█" if full else "┊" if place == at else "░"
            text.append(sign, colors.accent if full else colors.dim)
        text.append("\n")
    for line in lines[2 if report.limit else 1 :]:
        text.append(f"{line}\n", colors.text if line.startswith("  ") else colors.dim)
    return text


async def _write_usage(app: SessionApp, colors: Palette, columns: int) -> Text:
    text = Text()
    for line in format_usage(await app.client.snapshot(), await app.client.get_info(), columns).splitlines():
        is_head = line.startswith(("model ", "agent "))
        style = colors.dim if is_head else colors.strong if line.startswith("total ") else colors.text
        text.append(f"{line}\n", style)
    return text


async def _write_status(app: SessionApp, colors: Palette, columns: int) -> Text:
    text = Text()
    for label, value in await gather_status(app.client):
        text.append(f"{label:<13} ", colors.dim)
        text.append(f"{value}\n", colors.text)
    return text


async def _write_agents(app: SessionApp, colors: Palette, columns: int) -> Text:
    return Text(format_agents(await app.client.snapshot(), columns), colors.text)


async def _write_memory(app: SessionApp, colors: Palette, columns: int) -> Text:
    return Text(await format_memory(app.client), colors.text)


async def _write_language_servers(app: SessionApp, colors: Palette, columns: int) -> Text:
    return Text(format_language_servers(await app.client.get_info(), columns), colors.text)


async def _write_plugins(app: SessionApp, colors: Palette, columns: int) -> Text:
    return Text(format_plugins(await app.client.get_info(), columns), colors.text)


async def _write_diagnostics(app: SessionApp, colors: Palette, columns: int) -> Text:
    """Warnings, the number of errors, and the setup of the session."""
    info = await app.client.get_info()
    text = Text()
    if info.notice:
        text.append(f"{escape_hidden(info.notice)}\n\n", colors.warn)
    if info.warnings:
        text.append(f"{pluralize(len(info.warnings), 'warning')}\n", colors.warn)
        for warning in info.warnings:
            text.append(f"• {escape_hidden(warning)}\n", colors.text)
    else:
        text.append("No warnings.\n", colors.good)
    count = app.error_log.count
    key = app.keys.get_label("errors")
    many = pluralize(count, "error")
    errors = f"{many} since Odin started; {key} shows them." if count else "No errors since Odin started."
    text.append(f"\n{errors}\n\n", colors.bad if count else colors.text)
    for name, value in list_facts(info):
        text.append(f"{name:<16}", colors.dim)
        text.append(f"{escape_hidden(shorten_home(value))}\n", colors.text)
    text.append(f"\n{DOCTOR_HINT}", colors.dim)
    return text


REPORTS: dict[str, tuple[str, ReportWriter]] = {
    "agents": ("Agents and tasks", _write_agents),
    "context": ("Context window", _write_context),
    "diagnostics": ("Diagnostics", _write_diagnostics),
    "lsp": ("Language servers", _write_language_servers),
    "memory": ("Memory", _write_memory),
    "plugins": ("Plugins", _write_plugins),
    "status": ("Status", _write_status),
    "usage": ("Usage of this session", _write_usage),
}
"""The heading and the text of each report, by the slash command that shows it."""

MAX_DIFF_LINES = 3_000
"""Changed files are painted until there are this many lines, so that the dialog opens at once."""


def make_changes_report(files: Sequence[ChangedFile]) -> ReportDialog:
    async def write(app: SessionApp, colors: Palette, columns: int) -> Text:
        return await asyncio.to_thread(_paint_files, files, Canvas(columns, colors, app.settings.diff))

    return ReportDialog(f"Changes: {summarize_changes(files)}" if files else "Changes", write)


def make_skills_report(name: str) -> ReportDialog:
    async def write(app: SessionApp, colors: Palette, columns: int) -> Text:
        return Text(await format_skills(app.client, name, columns), colors.text)

    return ReportDialog("Skills", write)


def _paint_files(files: Sequence[ChangedFile], canvas: Canvas) -> Text:
    if not files:
        return Text(NO_CHANGES, canvas.palette.dim)
    text = Text()
    left = MAX_DIFF_LINES
    for number, file in enumerate(files):
        if left <= 0:
            text.append(f"{pluralize(len(files) - number, 'more file')}; /diff PATH shows one.", canvas.palette.warn)
            break
        text.append(f"{describe_changed_file(file)}\n", canvas.palette.strong)
        lines = file.diff.split("\n")
        strips = paint_diff("\n".join(islice(lines, left)), canvas, whole=True, indent=0) if file.diff else []
        for strip in strips:
            for segment in strip:
                text.append(segment.text, segment.style)
            text.append("\n")
        if len(lines) > left:
            text.append(f"{pluralize(len(lines) - left, 'more line')}; /diff PATH shows all.\n", canvas.palette.warn)
        left -= len(lines)
        text.append("\n")
    text.rstrip()
    return text


class ErrorsDialog(PickerDialog[ErrorEntry]):
    """The last errors, newest first, with the full text of the marked one."""

    KEY_SCOPES = ("errors", "list", "dialog")
    HEADING = "Errors"
    EMPTY_TEXT = "No errors since Odin started."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "copy"
    DETAIL = "always"
    ACTIONS: ClassVar[dict[str, str]] = {"copy_errors": "copy all"}

    async def load(self) -> Sequence[ErrorEntry]:
        return self.odin.error_log.newest_first

    def get_filter_text(self, item: ErrorEntry) -> str:
        return f"{item.kind} {item.agent} {item.detail}".casefold()

    def draw(self, item: ErrorEntry) -> RowContent:
        line = Text().append(f"{_format_clock(item.ts)} ", self.palette.dim)
        line.append(escape_hidden(item.line), self.palette.text)
        return line, (escape_hidden(item.kind), escape_hidden(item.agent))

    async def describe(self, item: ErrorEntry) -> Text:
        colors = self.palette
        text = Text().append(f"{escape_hidden(item.kind)}\n", colors.bad)
        agent = escape_hidden(item.agent) or "main agent"
        text.append(f"{_format_clock(item.ts)} · {agent}\n\n", colors.dim)
        text.append(sanitize(item.detail), colors.text)
        return text

    async def choose(self, item: ErrorEntry) -> None:
        self.odin.copy_to_clipboard(_format_error(item))
        self.odin.show_toast("Copied.")

    async def act(self, name: str, item: ErrorEntry | None) -> None:
        if self.all_items:
            self.odin.copy_to_clipboard("\n\n".join(map(_format_error, self.all_items)))
            self.odin.show_toast("Copied all errors.")


def _format_clock(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def _format_error(item: ErrorEntry) -> str:
    agent = f" ({item.agent})" if item.agent else ""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(item.ts))} {item.kind}{agent}\n{item.detail}"


_LEFT, _NARROW = 20, 12
_WIDE = 70

_SCOPE_TITLES: dict[KeyScope, str] = {
    "everywhere": "Everywhere",
    "composer": "In the prompt",
    "transcript": "In the conversation",
    "permission": "In permission requests",
    "questions": "In questions",
    "plan": "When a plan is presented",
    "popup": "In the completion popup",
    "queue": "In the list of queued prompts",
    "search": "While searching the conversation",
    "request": "While a request is open and you write a prompt",
    "answers": "When choosing an answer",
    "step": "When entering an answer",
    "confirm": "In confirmations",
    "welcome": "In the onboarding dialog",
    "dialog": "In every dialog",
    "list": "In every list",
    "sessions": "In the list of sessions",
    "models": "In the list of models",
    "rules": "In the list of rules",
    "servers": "In the list of MCP servers",
    "processes": "In the list of background processes",
    "rule": "When adding a rule",
    "rewind": "When rewinding",
    "contents": "In the list of prompts",
    "errors": "In the list of errors",
    "reading": "In reports",
    "stats": "In the statistics",
}

_SCOPE_ORDER: tuple[KeyScope, ...] = (
    "composer",
    "everywhere",
    "transcript",
    "permission",
    "questions",
    "plan",
    "popup",
    "queue",
)

HelpKind = Literal["key", "command", "custom"]


class HelpEntry(Struct, frozen=True):
    """One row of the help. `label` is the key or command, `name` the name of the key in the settings."""

    kind: HelpKind
    label: str
    summary: str
    name: str
    details: str = ""


class HelpDialog(PickerDialog[HelpEntry]):
    """All keys and commands, from the tables the app itself uses. Enter inserts a command into the prompt."""

    HEADING = "Help"
    EMPTY_TEXT = "No matches."
    ENTER_LABEL = "insert command"
    DETAIL = "always"

    async def load(self) -> Sequence[HelpEntry]:
        custom = await self.odin.client.list_commands()
        # The keys, most used scopes first.
        keys = self.odin.keys.keys
        entries: list[HelpEntry] = []
        for key in sorted(keys, key=_rank_scope):
            each = [format_key(one.strip()) for one in key.keys.split(",") if one.strip()]
            also = f"Also {', '.join(each[1:])}. " if len(each) > 1 else ""
            setting = f'Change it with tui.keys {{"{key.name}": "…"}}.'
            details = f"{also}{describe_scope(key.scope)}. {setting}"
            entries.append(HelpEntry("key", each[0] if each else "(no key)", key.description, key.name, details))
        return [*entries, *_list_commands(SLASH_COMMANDS), *_list_custom_commands(custom)]

    def get_filter_text(self, item: HelpEntry) -> str:
        return f"{item.kind} {item.label} {item.summary} {item.name} {item.details}".casefold()

    def draw(self, item: HelpEntry) -> RowContent:
        colors = self.palette
        room = _LEFT if self.size.width >= _WIDE else _NARROW
        line = Text(f"{item.label:<{room}} ", colors.accent if item.kind == "key" else colors.user)
        line.append(item.summary, colors.text)
        return line, ()

    async def describe(self, item: HelpEntry) -> Text:
        colors = self.palette
        text = Text().append(f"{item.label}\n", colors.strong)
        text.append(f"{item.summary}\n", colors.text)
        if item.details:
            text.append(f"\n{item.details}\n", colors.dim)
        return text

    async def choose(self, item: HelpEntry) -> None:
        self.dismiss(f"/{item.name} " if item.kind != "key" else None)


def describe_scope(where: KeyScope) -> str:
    """Return where a key works."""
    return _SCOPE_TITLES.get(where, f"In the {where}")


def _rank_scope(key: KeyAction) -> int:
    return _SCOPE_ORDER.index(key.scope) if key.scope in _SCOPE_ORDER else len(_SCOPE_ORDER)


def _list_commands(commands: Iterable[SlashCommand]) -> list[HelpEntry]:
    entries: list[HelpEntry] = []
    for command in commands:
        also = ", ".join(f"/{name}" for name in command.aliases)
        label = f"/{command.name} {command.hint}".rstrip()
        entries.append(HelpEntry("command", label, command.help, command.name, f"Also {also}." if also else ""))
    return entries


def _list_custom_commands(commands: Iterable[CustomCommand]) -> list[HelpEntry]:
    return [
        HelpEntry(
            "command" if command.source == "built-in" else "custom",
            escape_hidden(f"/{command.name} {command.hint}".rstrip()),
            escape_hidden(command.description) or "Custom command.",
            command.name,
            "A prompt for the model." if command.source == "built-in" else f"From the {command.source}.",
        )
        for command in commands
    ]
