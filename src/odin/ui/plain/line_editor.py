"""The input line of plain mode on a terminal: editing, history and completion, also while a turn runs."""

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

from prompt_toolkit.application import in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.search import stop_search

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.ui.completion import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    make_file_items,
)
from odin.ui.plain.keyboard import Keyboard
from odin.ui.plain.prompt_session import TerminalOutput, make_prompt_session
from odin.ui.slash_commands.agents import list_team
from odin.ui.terminal import discard_typed, escape_control, escape_hidden, measure_width, shorten, wrap_words

_MAX_FILES = 20
_RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.4)
"""Delays between file lookups while the project is being indexed for the first time."""
_MAX_ROWS = 5
"""Maximum rows of a sent prompt that stay on the screen."""


class LineEditor(Keyboard):
    """The input line at the bottom of the terminal, which is there as long as it is open.

    While a turn runs and nothing is typed, its progress has the line, else the right end of it. A dialog asks on the
    same line, once that is sent, cleared or set aside; what was set aside comes back afterwards.
    """

    def __init__(
        self,
        get_label: Callable[[], str],
        take: Callable[[str | None], None],
        get_client: Callable[[], Client],
        read_history: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        super().__init__(get_label, take)
        self._output = TerminalOutput(sys.stderr)
        self._session = make_prompt_session(
            sys.stdin,
            self._output,
            self._bind_keys(),
            message=self._format_message,
            rprompt=self._format_progress,
            multiline=True,
            completer=_PromptCompleter(get_client),
            complete_while_typing=False,
            history=_PromptHistory(read_history),
            erase_when_done=True,
        )
        self._app, self._buffer = self._session.app, self._session.default_buffer
        self._progress = ""
        self._question = ""
        self._answer: asyncio.Future[str] | None = None
        self._draft = Document()
        self._is_lent = False
        self._running: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return self._buffer.text

    def open(self) -> None:
        if self._running is not None and not self._running.done():
            return
        # The terminal has made line ends of the Enter keys that were pressed before now.
        source = self._app.input
        if isinstance(source, Vt100Input) and select.select([self.fd], [], [], 0)[0]:
            source.vt100_parser.feed(os.read(self.fd, 65536).decode(errors="replace").replace("\n", "\r"))
            store_typeahead(source, source.flush_keys())
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._app.run_async(set_exception_handler=False, handle_sigint=False)
        except Exception as error:  # the terminal is gone, or something else that ends plain mode
            self._take(None)
            if not isinstance(error, EOFError | OSError):
                raise

    async def close(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()
        if self._running is not None:
            await self._running
        self._output.end_paste()

    # --- keys ---

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()
        is_line = has_focus("DEFAULT_BUFFER")

        @keys.add("enter", filter=is_line)
        def accept(_: KeyPressEvent) -> None:
            self._accept(self._buffer.text)

        @keys.add("c-j", filter=is_line)
        @keys.add("escape", "enter", filter=is_line)
        def break_line(_: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add("tab", filter=Condition(lambda: self._line_ended is not None))
        def set_aside(_: KeyPressEvent) -> None:
            self._end_line(set_aside=True)

        @keys.add("c-d", filter=is_line)
        def close(_: KeyPressEvent) -> None:
            if self._buffer.text:
                self._buffer.delete()
            elif self._answer is not None:
                self.write(f"{self._question}\n")
                self._finish_question("")
            elif not self.is_busy and not self.is_held:
                self._take(None)

        return keys

    def _accept(self, text: str) -> None:
        if self._answer is not None:
            self.write(f"{self._question}{escape_control(text)}\n")
            self._finish_question(f"{text}\n")
        elif not self.is_held:
            if (self._is_shown and not self.is_busy) or self._line_ended is not None:
                self.write(f"{self._format_sent(text)}\n")
            self._buffer.reset(append_to_history=bool(text.strip()))
            self._finish_line(text)

    def _format_sent(self, text: str) -> str:
        label = self._get_label()
        first, *more = escape_control(text).split("\n")
        rows = [f"{label}{first}", *(f"{' ' * measure_width(label)}{row}" for row in more)]
        cut = [*rows[:_MAX_ROWS], "…"] if len(rows) > _MAX_ROWS else rows
        return shorten("\n".join(cut), _MAX_ROWS * self.get_columns())

    def clear_text(self) -> None:
        self._buffer.reset(append_to_history=True)
        self.draw()
        self._end_line()

    def set_text(self, text: str) -> None:
        self._draft = Document(text)
        if not self.is_held:
            self._buffer.reset(self._draft)
        self.show()

    # --- dialogs ---

    async def _is_writing(self) -> bool:
        await asyncio.sleep(0)  # so that keys which are already pressed begin a line
        return bool(self._buffer.text) or self._app.layout.is_searching

    def _print_notice(self, notice: str) -> None:
        text = f"{notice} Enter sends your line first; Tab answers now."
        self.write(f"{wrap_words(text, self.get_columns())}\n")

    def _start_dialog(self) -> None:
        with set_app(self._app):
            stop_search()
        self._draft = self._buffer.document
        self._buffer.reset()
        self.draw()

    def _end_dialog(self) -> None:
        self._buffer.reset(self._draft)
        self.draw()

    async def ask_line(self, text: str) -> str:
        return await self._ask(text, "")

    async def edit_line(self, label: str, text: str) -> str | None:
        typed = await self._ask(label, text)
        return typed.removesuffix("\n").replace("\n", " ") if typed else None

    async def _ask(self, text: str, value: str) -> str:
        """Print what comes before the last line of the text, and ask with that. Return "" after Ctrl-D."""
        discard_typed(self.fd)
        above, _, question = text.rpartition("\n")
        *rows, self._question = wrap_words(question, self.get_columns()).split("\n")
        if shown := "".join(f"{row}\n" for row in (*([above] if above else []), *rows)):
            self.write(shown)
        self._buffer.reset(Document(value))
        self._answer = asyncio.get_running_loop().create_future()
        self.draw()
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.write(self._question)  # it stays on the screen, as on other terminals
            self._finish_question("")
            raise

    def _finish_question(self, answer: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        self._answer, self._question = None, ""
        self._buffer.reset()
        self.draw()

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncGenerator[None]:
        with set_app(self._app):
            async with in_terminal():
                self._output.end_paste()
                self._is_lent = True
                try:
                    yield
                finally:
                    self._is_lent = False

    def resume(self) -> None:
        """After another stop than Ctrl-Z, set the terminal's mode again and draw the line where the cursor is now."""
        if self._app.is_running and not self._is_lent and not self._output.was_suspended:
            self._app.input.raw_mode().__enter__()
            self._app.renderer.reset()
            self.draw()
        self._output.was_suspended = False

    # --- drawing ---

    def end_turn(self) -> None:
        super().end_turn()
        self._progress = ""

    def show_progress(self, text: str) -> None:
        self._progress = text
        self.draw()

    def draw(self) -> None:
        self._app.invalidate()

    def write(self, text: str) -> None:
        self.clear()
        super().write(text)

    def clear(self) -> None:
        if self._app.renderer.last_rendered_screen is not None and not self._is_lent:
            self._output.keeps_paste = True
            self._app.renderer.erase()
            self._output.keeps_paste = False
        self.draw()

    def _format_message(self) -> StyleAndTextTuples:
        if self.is_held:
            return [("", self._question)]
        if self._buffer.text or (self._is_shown and not self.is_busy):
            return [("", self._get_label())]
        return [(self._dim, self._progress)]

    def _format_progress(self) -> StyleAndTextTuples:
        is_typing = self._buffer.text and self.is_busy and not self.is_held
        return [(self._dim, f" {self._progress}")] if is_typing else []

    @property
    def _dim(self) -> str:
        return "dim" if self.painter.is_on else ""


class _PromptHistory(InMemoryHistory):
    """The lines sent so far, and before them the prompts of earlier sessions, which are read when first needed."""

    def __init__(self, read_older: Callable[[], Awaitable[Sequence[str]]]) -> None:
        super().__init__()
        self._read_older = read_older
        self._older: Sequence[str] | None = None

    async def load(self) -> AsyncGenerator[str]:
        if self._older is None:
            self._older = ()
            with contextlib.suppress(OdinError, OSError):
                self._older = await self._read_older()
        for line in (*reversed(self.get_strings()), *self._older):
            yield line


class _PromptCompleter(Completer):
    """Completes commands, their arguments and @ files."""

    def __init__(self, get_client: Callable[[], Client]) -> None:
        self._get_client = get_client

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        before, row = document.current_line_before_cursor, document.cursor_position_row
        target = find_target(before, len(before), first=row == 0)
        if target is None:
            return
        typed = before[target.start :]
        items = await _find_items(self._get_client(), target)
        starting = [item for item in items if item.insert.casefold().startswith(typed.casefold())]
        for item in starting or items:
            label, about = escape_hidden(item.label), escape_hidden(item.help)
            yield Completion(item.insert, -len(typed), display=label, display_meta=about)


async def _find_items(client: Client, target: CompletionTarget) -> Sequence[CompletionItem]:
    with contextlib.suppress(OdinError, OSError):
        if target.kind == "argument":
            agents = await client.list_agents() if target.command == "role" else ()
            team = await list_team(client) if target.command in ("focus", "loop") else ()
            return complete_argument(target, agents, team)
        if target.kind == "command":
            return complete_command(target.letters, await client.list_commands())
        for pause in (*_RETRY_DELAYS_S, 0.0):
            if paths := await client.find_files(target.letters, _MAX_FILES):
                return make_file_items([path for path in paths if escape_hidden(path) == path])
            await asyncio.sleep(pause)
    return ()
