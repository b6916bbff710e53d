"""The summary of a headless run (`--summary FILE`): Markdown for the page of a CI job or a comment.

Names, commands and messages of others are code or escaped text on one line. The answer is Markdown in a block quote,
which ends whatever it opens: its code stays as it is; its HTML, links and images are text, nobody is mentioned, and no
line starts a quick action. `MAX_CHARS` fits into a comment on GitHub and GitLab.
"""

import asyncio
import errno
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from odin.core.call_events import ToolEnded, ToolStarted, UsageRecorded, UsageTotals
from odin.core.client import Client
from odin.core.errors import EXIT_CODES, NeedsConfirmation, Rejected, UsageError
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.format import clip, format_count, format_duration, pluralize
from odin.core.lazy_pattern import compile_lazily
from odin.core.policy import Redact, redact_nothing
from odin.core.text import get_typed_text
from odin.ui.edited_files import EditedFile, EditedFiles
from odin.ui.exit import TURN_END_TIMEOUT_S, describe_ending, describe_verification, get_exit_code
from odin.ui.progress import EventLines
from odin.ui.slash_commands.reports import format_cost
from odin.ui.terminal import escape_control, escape_hidden, write_line

MAX_CHARS = 60_000
_MAX_LIST = 8_000
_MAX_LINE = 600
_MAX_TURNS = 10
"""The newest turns of a longer run are shown."""

_DISCARDED = (NeedsConfirmation.__name__, Rejected.__name__)
"""Errors of commands that have run, but whose changes nobody allowed."""


class _Turn(Struct):
    started: TurnStarted
    ended: TurnEnded | None = None


class RunSummary:
    """Follows a run and appends its summary to a file, which stays open, so that nothing replaces it meanwhile.

    Raise UsageError if the file cannot be written. Texts are redacted with `redact`.
    """

    def __init__(self, path: str) -> None:
        if path in ("", "-"):
            raise UsageError(
                "--summary needs the name of a file.",
                "Standard output is for the answer." if path else "It is empty: is the variable set?",
            )
        self.redact: Redact = redact_nothing
        self._path = path
        try:  # without O_NONBLOCK, a pipe without a reader would be waited for
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd = os.open(path, flags, 0o666)
        except OSError as error:
            why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise UsageError(f"Cannot write the summary {path}: {why}.") from error
        self._reading: asyncio.Task[None] | None = None
        self._session = self._folder = ""
        self._turns: list[_Turn] = []
        self._files = EditedFiles()
        self._lines = EventLines()
        self._denied: list[str] = []
        self._commands: dict[str, tuple[str, str]] = {}
        self._spent: dict[str, UsageTotals] = {}

    def follow(self, client: Client) -> None:
        """Read the events of the client from now on."""
        self._reading = asyncio.get_running_loop().create_task(self._read(client, client.stream_events()))

    async def finish(self) -> None:
        """Wait for the last events of the client, which is closed."""
        if self._reading is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reading, TURN_END_TIMEOUT_S)

    async def _read(self, client: Client, events: AsyncIterator[Envelope]) -> None:
        info = await client.get_info()
        self._session, self._folder = info.session, info.cwd
        async for envelope in events:
            self._apply(envelope)

    def _apply(self, envelope: Envelope) -> None:
        self._files.apply(envelope)
        line = self._lines.format_line(envelope)
        match envelope.event:
            case TurnStarted() as event if not envelope.agent:
                self._turns.append(_Turn(event))
            case TurnEnded() as event if not envelope.agent and self._turns:
                self._turns[-1].ended = event
            case UsageRecorded() as event:
                spent = self._spent.get(event.model, UsageTotals())
                self._spent[event.model] = spent + UsageTotals.from_event(event)
            case ToolStarted(call_id=call_id, args={"command": str(command)}):
                self._commands[call_id] = (command, "stopped")
            case ToolEnded() as event:
                if event.status == "denied" or event.error_kind in _DISCARDED:
                    self._denied.append(line)
                if event.call_id in self._commands:
                    self._commands[event.call_id] = (self._commands[event.call_id][0], _describe_result(event))
            case _:
                pass

    def write(self, code: int, failure: str = "") -> None:
        """Append the summary of a run with this exit code. If that fails, say so on standard error."""
        try:
            before = "\n\n" if os.fstat(self._fd).st_size else ""
            data = f"{before}{self._render(code, failure)}".encode()
            while data:  # one write; the rest, on a full disk, fails with the reason
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            write_line(sys.stderr, f"odin: Cannot write the summary {self._path}: {error.strerror}.")
        finally:
            os.close(self._fd)

    def _render(self, code: int, failure: str) -> str:
        ended = next((turn.ended for turn in reversed(self._turns) if turn.ended is not None), None)
        reason = failure or (describe_ending(ended) if ended is not None else "")
        checks = describe_verification(ended.verification) if ended is not None else ""
        files = [self._render_file(file) for file in self._files.files.values()]
        commands = [f"{self._quote(command)}: {result}" for command, result in self._commands.values()]
        outcome = code or (get_exit_code(ended) if ended is not None else 0)  # a program reads it in the result
        head = [
            f"## Odin: {EXIT_CODES.get(outcome, 'failure')}",
            "",
            f"- Exit code: {code}",
            *([f"- Reason: {self._escape(reason)}"] if reason else []),
            *([f"- {self._escape(checks)}"] if checks else []),
            *([f"- Model: {self._describe_usage()}"] if self._spent else []),
        ]
        tail = [
            *_render_list("Changed files", files),
            *_render_list("Denied", [self._quote(line) for line in self._denied]),
            *_render_list("Commands", commands, is_folded=True),
        ]
        if self._turns:
            shown = f"odin --resume {self._session}", f"odin sessions export {self._session}"
            tail += ["", f"Continue this session with `{shown[0]}`; `{shown[1]}` writes it to a file."]
        room = MAX_CHARS - sum(len(line) + 1 for line in (*head, *tail))
        return "\n".join([*head, *self._render_turns(room), *tail, ""])

    def _render_turns(self, room: int) -> list[str]:
        turns = self._turns[-_MAX_TURNS:]
        left = len(self._turns) - len(turns)
        lines = ["", f"{pluralize(left, 'earlier prompt')} left out."] if left else []
        for turn in turns:
            if turn.started.source != "mail":
                lines += ["", f"Prompt: {self._quote(get_typed_text(turn.started.body))}"]
            if turn.ended is not None and turn.ended.text:
                answer = self.redact(turn.ended.text).text
                lines += ["", *quote_answer(answer, room // len(turns) - 2 * _MAX_LINE)]
        return lines

    def _render_file(self, file: EditedFile) -> str:
        counts = f" +{file.added:,} −{file.removed:,}" if file.is_counted else ""
        return f"{self._quote(file.path.removeprefix(f'{self._folder}/'))}{' deleted' if file.is_deleted else counts}"

    def _describe_usage(self) -> str:
        total = sum(self._spent.values(), UsageTotals())
        used = total.usage
        took = sum(turn.ended.duration_ms for turn in self._turns if turn.ended is not None) / 1000
        steps = sum(turn.ended.steps for turn in self._turns if turn.ended is not None)
        parts = (
            ", ".join(self._quote(model) for model in self._spent),
            pluralize(steps, "step"),
            f"{format_count(used.input + used.cache_read + used.cache_write)} tokens in",
            f"{format_count(used.output + used.reasoning)} out",
            format_cost(total.cost_usd, total.unpriced),
            format_duration(took),
        )
        return " · ".join(parts)

    def _clean(self, text: str) -> str:
        return clip(escape_hidden(" ".join(self.redact(text).text.split())), _MAX_LINE)

    def _quote(self, text: str) -> str:
        """Return foreign text as code on one line."""
        line = self._clean(text) or " "
        fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
        return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"

    def _escape(self, text: str) -> str:
        """Return a message that may contain foreign text, with its Markdown escaped."""
        return re.sub(r"[`*_|~$#]", r"\\\g<0>", _defuse(self._clean(text)))


def _describe_result(event: ToolEnded) -> str:
    if event.error_kind in _DISCARDED:
        return "its changes were discarded"
    if event.asynchronous:
        return "in the background"
    found = re.search(r"\((exit code -?\d+|timed out)\)$", event.text[-100:].rstrip())
    return found[1] if found else {"success": "ok", "error": "failed"}.get(event.status, event.status)


def _render_list(heading: str, items: Sequence[str], *, is_folded: bool = False) -> Iterable[str]:
    if not items:
        return
    title = f"{heading} ({len(items):,})"
    yield from ("", f"<details><summary>{title}</summary>" if is_folded else f"### {title}", "")
    used = 0
    for number, item in enumerate(items):
        used += len(item)
        if used > _MAX_LIST:
            yield f"- … and {len(items) - number:,} more"
            break
        yield f"- {item}"
    if is_folded:
        yield from ("", "</details>")


_LINKED = compile_lazily(r"@(?=\w)|[#!](?=\d)|:(?=//)|www(?=\.)", re.IGNORECASE)
"""Where GitHub and GitLab make text a mention or a link. A zero-width space prevents it."""

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", "[": "\\[", "\\": "\\\\"})


def _defuse(text: str) -> str:
    return _LINKED.sub("\\g<0>\u200b", text).translate(_ESCAPES)


_FENCE = compile_lazily(r"(?:[\s>]|(?:[-*+]|\d+[.)])\s)*(?:(`{3,})([^`]*)|(~{3,})(.*))$")
_CODE = compile_lazily(r"(?P<span>(`+)(?!`)(.+?)(?<!`)\2(?!`))|(?P<open>`+)|[^`]+")
_PLAIN_LANGUAGES = "bash c cpp css diff go html java javascript json python ruby rust sh sql toml typescript yaml"
"""Those of code blocks that are only colored: others become diagrams or suggestions."""


def quote_answer(text: str, room: int) -> list[str]:
    """Return the answer as a block quote of at most `room` characters."""
    text = escape_control(text.replace("\r\n", "\n")).strip("\n")
    shown = text[:room]
    while len(quoted := "\n".join(f"> {line}".rstrip() for line in _neutralize(shown.split("\n")))) > room:
        shown = shown[: len(shown) * room // len(quoted) - 1]
    left = len(text) - len(shown)
    return [quoted, *(["", f"The answer goes on: {left:,} characters are left out."] if left else [])]


def _neutralize(lines: Sequence[str]) -> Iterable[str]:
    """Yield the lines with only code as it was. Its fences are put where every reader of Markdown finds them."""
    fence = ""
    for line in lines:
        if fence:
            word = line.strip()
            is_end = len(word) >= len(fence) and not word.strip(fence[0])
            yield fence if is_end else line
            fence = "" if is_end else fence
        elif (opened := _FENCE.match(line)) is not None:
            fence = opened[1] or opened[3]
            language = (opened[2] or opened[4] or "").strip()
            yield f"{fence}{language if language in _PLAIN_LANGUAGES.split() else ''}"
        else:
            yield _neutralize_line(line)
    if fence:
        yield fence


def _neutralize_line(line: str) -> str:
    """Escape all but code spans. Where a table may split them, their content, too; a lone backtick opens none."""
    is_split = "|" in line

    def replace(found: re.Match[str]) -> str:
        if found["span"] and not is_split:
            return found[0]
        if found["span"]:
            return f"{found[2]}{_defuse(found[3])}{found[2]}"
        return "\\`" * len(found[0]) if found["open"] else _defuse(found[0])

    return _CODE.sub(replace, line)
