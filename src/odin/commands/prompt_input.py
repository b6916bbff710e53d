"""The prompt of `odin -p`: the argument, and below it the text that is piped to Odin."""

import errno
import os
import select
import sys

from odin.commands.command_line import write_message
from odin.core.errors import EmptyPrompt, UsageError
from odin.core.text import append_piped_text, to_valid_unicode

MAX_STDIN = 10_000_000
FIRST_BYTE_TIMEOUT_S = 3.0
"""How long the first byte of a pipe is waited for if there is also a prompt on the command line."""

_IDLE_PIPE = (
    "Standard input is an open pipe without data for {:g} s, so it is ignored. Use `< /dev/null` to avoid the wait, or "
    "`odin -p -` to wait for it."
)


def read_prompt(argument: str | None, patience: float = FIRST_BYTE_TIMEOUT_S) -> str:
    """Return the prompt: the argument, standard input, or both; `-` is standard input alone.

    With an argument nothing is waited for at a terminal, and at most `patience` seconds at a pipe without data.
    """
    try:
        if argument is None or argument == "-":
            text = "" if sys.stdin.isatty() else _read_standard_input()
        else:
            text = to_valid_unicode(argument)
            if text.strip() and (piped := _read_piped_text(patience)).strip():
                text = append_piped_text(text, piped)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise UsageError(f"Cannot read standard input ({error.strerror}).") from error
        text = "" if argument in (None, "-") else to_valid_unicode(argument)  # under nohup there is no input
    if not text.strip():
        raise EmptyPrompt
    return text


def _read_piped_text(patience: float) -> str:
    """Return what is piped in beside a prompt; "" if standard input is a terminal, an idle pipe or write-only."""
    if sys.stdin.isatty() or not _can_read_stdin():
        return ""
    if not select.select([sys.stdin], [], [], patience)[0]:
        write_message(_IDLE_PIPE.format(patience))
        return ""
    return _read_standard_input()


def _can_read_stdin() -> bool:
    """False for a write-only descriptor, which nohup leaves as standard input, and for a stream without one."""
    try:
        os.read(sys.stdin.fileno(), 0)
    except OSError:
        return False
    return True


def _read_standard_input() -> str:
    raw = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(raw) > MAX_STDIN:
        raise UsageError(
            f"Standard input is longer than {MAX_STDIN // 1_000_000} MB.",
            "Save it to a file and name the file in the prompt, or pass only a part of it, for example with `tail`.",
        )
    if b"\0" in raw:
        raise UsageError(
            "Standard input is binary data, not text.", "Save it to a file and name the file in the prompt."
        )
    return raw.decode("utf-8", "replace")
