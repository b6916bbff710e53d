"""Going back in words: which prompt is meant, and what became of its files."""

import os
from collections.abc import Sequence

from odin.core.client import TurnRecord
from odin.core.errors import UsageError
from odin.core.event import FileChange, Redone, Rewound, SkippedFile
from odin.core.op import Rewind
from odin.ui.terminal import escape_hidden


def parse_force(words: list[str]) -> bool:
    if set(words) - {"force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", "Only the word force may follow.")
    return "force" in words


def parse_rewind(words: list[str], turns: Sequence[TurnRecord], command: str) -> Rewind:
    number = words.pop(0) if words and words[0].isdecimal() else "1"
    if set(words) - {"files", "chat", "force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", f"Write {command} [N] [files|chat] [force].")
    if not 1 <= int(number) <= len(turns):
        raise UsageError(f"There is no prompt number {number} to take back.", "/rewind lists them.")
    both = ("files" in words) == ("chat" in words)
    return Rewind(
        turns[-int(number)].id, files=both or "files" in words, chat=both or "chat" in words, force="force" in words
    )


def describe_rewind(event: Rewound | Redone, cwd: str) -> str:
    """What a rewind, or taking one back, has done, line by line."""
    lines = format_file_lines(event.changes, event.skipped_files, cwd)
    if event.skipped_files and isinstance(event, Rewound):
        lines.append("To take what was left alone back too, if it is saved: /redo, then the same again with force.")
    if isinstance(event, Redone):
        lines.append("That was put back.")
    elif event.chat:
        lines.append("The conversation is back to before that prompt. /redo takes this back.")
    else:
        lines.append("The conversation stays as it is. /redo takes this back.")
    return "\n".join(lines) + "\n"


def format_file_lines(changes: Sequence[FileChange], kept: Sequence[SkippedFile], cwd: str) -> list[str]:
    """A line for each file: what became of it, or why it stays."""
    lines: list[str] = []
    for change in sorted(changes, key=lambda change: change.after.path):
        verb = "removed" if change.after.kind == "absent" else "restored"
        lines.append(f"{verb:<10}  {_relative_path_of(change.after.path, cwd)}")
    return lines + [f"left alone  {_relative_path_of(file.path, cwd)} ({file.reason})" for file in kept]


def _relative_path_of(path: str, cwd: str) -> str:
    return escape_hidden(os.path.relpath(path, cwd))
