"""The terminal beside a headless run: one progress line, and questions to a person with everything shown as it is."""

import asyncio
import os
import re
import time
from collections import deque
from typing import TextIO

import msgspec

from odin.core.client import Client
from odin.core.event import (
    ActivityChanged,
    Envelope,
    PermissionAnswered,
    PermissionAsked,
    Question,
    QuestionsAnswered,
    QuestionsAsked,
    RetryScheduled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Updated,
)
from odin.core.op import Answer, AnswerQuestions
from odin.ui.questions import chosen

_ACTIVITIES = {
    "connecting": "connecting to the model",
    "waiting_headers": "waiting for the model",
    "waiting_token": "waiting for the model",
    "streaming": "the model is answering",
    "compacting": "summarising the conversation",
    "retrying": "waiting to try again",
    "retrying_key": "trying another key",
    "cooling": "waiting for a usable key",
    "verifying": "checking the work",
}


class _Escapes:
    """Spells out the characters of these ranges, for `str.translate`."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._ranges = ranges

    def __getitem__(self, code: int) -> str:
        if any(first <= code <= last for first, last in self._ranges):
            return ascii(chr(code))[1:-1]
        raise LookupError


_CONTROL = ((0x7F, 0x9F), (0xD800, 0xDFFF))
_INVISIBLE = ((0x61C, 0x61C), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x2069), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF))
_STEERING = _Escapes((0, 8), (0x0B, 0x1F), *_CONTROL)
_HIDDEN = _Escapes((0, 0x1F), *_CONTROL, *_INVISIBLE)


def visible(text: str) -> str:
    """One line with nothing hidden: control, direction and zero-width characters escaped, long padding counted."""
    return re.sub(" {16,}", lambda found: f"⟨{len(found[0])} spaces⟩", text.translate(_HIDDEN))


def harmless(text: str) -> str:
    """Text for a terminal that keeps its lines but cannot steer the terminal."""
    return text.translate(_STEERING)


class Progress:
    """What is running and for how long, on the last line of a terminal. On anything else it draws nothing."""

    def __init__(self, err: TextIO | None) -> None:
        self._err = err
        env = os.environ
        terminal = err is not None and err.isatty()
        self._live = terminal and env.get("TERM", "") not in ("", "dumb")
        self._lines = terminal and not self._live
        self._dim = ("\x1b[2m", "\x1b[0m") if self._live and not env.get("NO_COLOR") else ("", "")
        self._tools: dict[str, tuple[str, float]] = {}
        self._what = "starting"
        self._since = time.monotonic()
        self._drawn = False
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._live:
            self._tick()

    def see(self, envelope: Envelope) -> None:
        """Follow the session. Must not be called after `close`."""
        event = envelope.event
        if isinstance(event, ToolStarted):
            what = f"{event.name} {event.description}".strip()
            self._tools[event.call_id] = (what, time.monotonic())
            if self._lines:
                self.line(what)
        elif isinstance(event, ToolEnded):
            self._tools.pop(event.call_id, None)
        elif isinstance(event, ActivityChanged) and event.activity in _ACTIVITIES:
            self._now(_ACTIVITIES[event.activity])
        elif isinstance(event, Updated):
            self._now(event.text)
        else:
            return
        self._draw()

    def line(self, text: str) -> None:
        """A line that stays, above the progress."""
        self._clear()
        self._put(f"{visible(text)}\n")
        self._draw()

    def hold(self) -> None:
        """Leave the terminal to somebody else until `release`."""
        self._clear()
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self._draw()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._clear()
        self._live = False

    def _now(self, what: str) -> None:
        if what != self._what:
            self._what, self._since = what, time.monotonic()

    def _tick(self) -> None:
        self._draw()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def _draw(self) -> None:
        if not self._live or self._held:
            return
        what, since = next(reversed(self._tools.values()), (self._what, self._since))
        more = f" (+{len(self._tools) - 1})" if len(self._tools) > 1 else ""
        time_spent = f" {int(time.monotonic() - since)}s"
        room = max(self._columns() - len(more) - len(time_spent) - 1, 8)
        shown = shorten(visible(what), room)
        self._put(f"\r\x1b[K{self._dim[0]}{shown}{more}{time_spent}{self._dim[1]}")
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._put("\r\x1b[K")
            self._drawn = False

    def _columns(self) -> int:
        try:
            return (os.get_terminal_size(self._err.fileno()).columns if self._err else 0) or 80
        except OSError:
            return 80

    def _put(self, text: str) -> None:
        put(self._err, text)


def put(err: TextIO | None, text: str) -> None:
    """Write to a stream of messages. One that is closed or speaks another encoding is no reason to fail."""
    if err is None:
        return
    try:
        err.write(text.encode(err.encoding or "utf-8", "replace").decode(err.encoding or "utf-8"))
        err.flush()
    except (OSError, ValueError):
        return


def shorten(text: str, room: int) -> str:
    """At most `room` columns, wide characters counted as two."""
    if len(text) <= room and text.isascii():
        return text
    from unicodedata import east_asian_width

    used = 0
    for index, character in enumerate(text):
        used += 2 if east_asian_width(character) in "WF" else 1
        if used > room:
            return text[: max(index - 1, 0)] + "…"
    return text


class Questions:
    """Asks a person on a terminal, one thing at a time, and takes back what no longer matters."""

    def __init__(self, client: Client, tty: TextIO, err: TextIO | None, progress: Progress) -> None:
        self._client = client
        self._tty = tty
        self._err = err
        self._progress = progress
        self._asks: deque[PermissionAsked | QuestionsAsked] = deque()
        self._current = ""
        self._task: asyncio.Task[None] | None = None

    def see(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            self._asks.append(event)
            self._next()
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._drop(event.ask_id)
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._asks.clear()
            self._drop(self._current)

    async def close(self) -> None:
        """Let go of the terminal. Whoever reads it next must find it free, so this waits until it is."""
        self._asks.clear()
        task = self._task
        self._drop(self._current)
        if task is not None:
            await asyncio.wait([task], timeout=1.0)

    def _drop(self, ask_id: str) -> None:
        self._asks = deque(ask for ask in self._asks if ask.ask_id != ask_id)
        if ask_id and ask_id == self._current and self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        if self._task is None and self._asks:
            ask = self._asks.popleft()
            self._current = ask.ask_id
            self._task = asyncio.get_running_loop().create_task(self._ask(ask))
            self._task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._task, self._current = None, ""
        if not task.cancelled():
            task.result()
        self._next()

    async def _ask(self, ask: PermissionAsked | QuestionsAsked) -> None:
        self._progress.hold()
        try:
            answer = await (self._choose(ask) if isinstance(ask, QuestionsAsked) else self._answer(ask))
        except asyncio.CancelledError:
            self._say("\n")
            raise
        except OSError:
            answer = _unasked(ask, "The question could not be asked on this terminal.")
        finally:
            self._progress.release()
        self._current = ""
        await self._client.submit(answer)

    async def _answer(self, ask: PermissionAsked) -> Answer | AnswerQuestions:
        if _in_background(self._tty.fileno()):
            return _unasked(ask, _BACKGROUND)
        reply = (await self._line(question(ask))).strip()
        if reply.casefold() in ("y", "yes"):
            return Answer(ask.ask_id, allow=True)
        if reply.casefold() in ("", "n", "no"):
            return Answer(ask.ask_id, allow=False)
        return Answer(ask.ask_id, allow=False, reason=reply)

    async def _choose(self, ask: QuestionsAsked) -> Answer | AnswerQuestions:
        """One question after the other. The end of the input (Ctrl-D) cancels them all."""
        if _in_background(self._tty.fileno()):
            return _unasked(ask, _BACKGROUND)
        answers: list[tuple[str, ...]] = []
        for number, item in enumerate(ask.questions, 1):
            place = f" ({number} of {len(ask.questions)})" if len(ask.questions) > 1 else ""
            text = choices(item, place)
            answer = None
            while answer is None:
                reply = await self._line(text)
                if not reply:
                    self._say("\n")
                    return AnswerQuestions(ask.ask_id, cancelled=True)
                answer = chosen(item, reply)
                text = "Only one of them: "
            self._say(f"→ {visible(', '.join(answer) or _default(item))}\n")
            answers.append(answer)
        return AnswerQuestions(ask.ask_id, tuple(answers))

    async def _line(self, text: str) -> str:
        _forget_typed(self._tty.fileno())
        self._say(text)
        return await _read_line(self._tty.fileno())

    def _say(self, text: str) -> None:
        if self._err is not None and self._err.isatty():
            put(self._err, text)
        else:
            os.write(self._tty.fileno(), text.encode())


def question(ask: PermissionAsked) -> str:
    """What a person decides on: the tool, everything it is about, and why it is asked."""
    subject = ask.subject or msgspec.json.encode(ask.args).decode()
    shown = "\n".join(f"  | {visible(line)}" for line in subject.split("\n"))
    why = f"{visible(ask.reason)}\n" if ask.reason else ""
    return f"Odin asks to use {visible(ask.name)}:\n{shown}\n{why}Allow it? [y]es, [n]o, or say why not: "


_BACKGROUND = "Odin runs in the background and cannot ask."


def _unasked(ask: PermissionAsked | QuestionsAsked, why: str) -> Answer | AnswerQuestions:
    if isinstance(ask, QuestionsAsked):
        return AnswerQuestions(ask.ask_id, cancelled=True, by=why)
    return Answer(ask.ask_id, allow=False, reason=why)


def choices(asked: Question, place: str = "") -> str:
    """One question with its options numbered, and how to answer it."""
    head = f"{visible(asked.header)}: " if asked.header else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(visible(line) for line in asked.text.split("\n"))]
    for number, option in enumerate(asked.options, 1):
        detail = f" ({visible(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {visible(option.label)}{detail}")
    several = "numbers such as 1,2" if asked.multiple else "a number"
    how = f"{several}, your own words, or Enter for 1; " if asked.options else ""
    return "\n".join([*lines, f"Answer ({how}Ctrl-D cancels): "])


def _default(asked: Question) -> str:
    return asked.options[0].label if asked.options else "(no answer)"


def _in_background(fd: int) -> bool:
    """Whether reading this terminal would stop us instead of giving an answer."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def _forget_typed(fd: int) -> None:
    """What was typed before the question was shown is no answer to it."""
    import termios

    termios.tcflush(fd, termios.TCIFLUSH)


async def _read_line(fd: int) -> str:
    """One line of a terminal; empty when it is closed."""
    loop = asyncio.get_running_loop()
    line = b""
    while b"\n" not in line:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, lambda waiting=ready: waiting.done() or waiting.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        typed = os.read(fd, 4096)
        if not typed:
            break
        line += typed
    return line.decode(errors="replace")


def retry_line(event: RetryScheduled) -> str:
    return f"Attempt {event.attempt} of {event.attempts} failed: {event.error} Trying again in {event.delay_s:.1f} s."
