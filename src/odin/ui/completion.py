"""Completion of the word before the cursor: commands, their arguments and project files; with fuzzy matching."""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from odin.core.client import AgentSummary, CustomCommand, SubAgentRecord
from odin.core.provider import EFFORTS
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command
from odin.core.team import TaskRecord

EXACT_PART_SCORE = 50_000
"""Scores from here on mean that the text contains every word literally."""


def score_match(words: str, text: str) -> int:
    """Return how well `text` matches all the words, ignoring case; 0 if it does not.

    From best to worst: the whole text, its start, a part of it, the letters in this order.
    """
    query, text = words.casefold().strip(), text.casefold()
    if not query:
        return 1
    if text == query:
        return 1_000_000
    if text.startswith(query):
        return 500_000 - min(len(text), 1000)
    scores = [_score_word(word, text) for word in query.split()]
    return 0 if 0 in scores else min(scores)


def _score_word(word: str, text: str) -> int:
    at = text.find(word)
    if at >= 0:
        starts_word = at == 0 or not text[at - 1].isalnum()
        return (200_000 if starts_word else 100_000) - min(at, 1000)
    position, first = -1, 0
    for letter in word:
        position = text.find(letter, position + 1)
        if position < 0:
            return 0
        first = first or position + 1
    spread = position + 1 - first - len(word)
    return max(1, 10_000 - 50 * spread) if spread <= 2 * len(word) else 0


CompletionKind = Literal["command", "argument", "file"]

_MENTION = re.compile(r"""(?:^|(?<=[\s('"`\[{<>=,;:]))@("[^"\n]*|[^\s"@]*)$""")
_RANGE = re.compile(r"\S:\d*-?\d*$")
_COMMAND = re.compile(r"/([^\s]*)$")
_ARGUMENT = re.compile(r"/(\S+)\s+(\S*)$")
_ARGUMENT_WORDS: dict[str, tuple[str, ...]] = {
    "loop": ("on", "every", "off"),
    "at": ("in", "off"),
    "yolo": ("on", "off"),
    "mouse": ("on", "off"),
    "vim": ("on", "off"),
    "theme": ("auto", "dark", "light"),
    "effort": (*EFFORTS, "default"),
    "compact": ("cancel",),
    "show": ("model", "mode", "role", "sandbox", "rules", "context"),
    "lsp": ("restart", "disable", "enable"),
    "mcp": ("status", "enable", "disable", "reconnect"),
    "list": ("models", "sessions", "rules", "commands", "skills", "tools"),
    "switch": ("model", "mode", "role"),
}
_PERMISSION_MODES = {
    "default": "Odin asks before it changes files or runs commands.",
    "acceptEdits": "Edits in the project are not asked about.",
    "auto": "Sandboxed commands and edits in the project are not asked about.",
    "dontAsk": "What would be asked about is denied.",
}


class CompletionTarget(Struct, frozen=True):
    """The letters to complete and their columns in the line. `command` is set for an argument."""

    kind: CompletionKind
    start: int
    end: int
    letters: str
    command: str = ""


class CompletionItem(Struct, frozen=True):
    """One suggestion. `insert` replaces the letters.

    `continues`: more has to be typed, such as the rest of a path. `is_runnable`: the line can be sent as it is then.
    """

    label: str
    insert: str
    hint: str = ""
    help: str = ""
    continues: bool = False
    is_runnable: bool = False


def find_target(line: str, column: int, *, first: bool) -> CompletionTarget | None:
    """Return what can be completed at this column. Commands only complete in the `first` line of a prompt."""
    before = line[:column]
    if first and (found := _COMMAND.fullmatch(before)):
        return CompletionTarget("command", 0, column, found[1])
    if first and (found := _ARGUMENT.fullmatch(before)):
        return CompletionTarget("argument", found.start(2), column, found[2], found[1])
    found = _MENTION.search(before)
    if found is None or before[:1] == "!" or _RANGE.search(found[1]):
        return None
    return CompletionTarget("file", found.start(), column, found[1].removeprefix('"'))


_USUAL_COMMANDS = (
    *("model", "compact", "resume", "undo", "new", "plan", "diff", "agents", "context", "usage"),
    *("permissions", "review", "init", "help"),
)
"""First in the list of all commands, and before others that begin with the same letters."""


def complete_command(letters: str, custom: Sequence[CustomCommand]) -> list[CompletionItem]:
    """Return the commands that match these letters, best first.

    An exact match comes first, then names and then aliases that begin with the letters, the usual commands before
    others, then other matches.
    """
    ranks = {name: rank for rank, name in enumerate(_USUAL_COMMANDS)}
    scored: list[tuple[tuple[int, bool, int, int], CompletionItem]] = []

    def add(item: CompletionItem, name: str, aliases: Sequence[str] = ()) -> None:
        own = score_match(letters, name)
        if best := max(own, *(score_match(letters, alias) for alias in aliases), 0):
            scored.append(((-(best // 100_000), own < best, ranks.get(name, len(ranks)), -best), item))

    for command in SLASH_COMMANDS:
        add(_make_command_item(command.name, command.hint, command.help), command.name, command.aliases)
    for own in custom:
        help_ = own.description or f"Custom command ({own.source})."
        add(_make_command_item(own.name, own.hint, help_), own.name)
    return [choice for _, choice in sorted(scored, key=lambda item: item[0])]


def _make_command_item(name: str, hint: str, sentence: str) -> CompletionItem:
    runs = not hint or hint.startswith("[")
    return CompletionItem(
        f"/{name}", f"/{name} " if hint else f"/{name}", hint, sentence, continues=not runs, is_runnable=runs
    )


def is_command(text: str, custom: Sequence[CustomCommand]) -> bool:
    """True if this is the full name of a command, in any case."""
    name = text.removeprefix("/").casefold()
    return find_slash_command(name) is not None or any(own.name.casefold() == name for own in custom)


def complete_argument(
    target: CompletionTarget, agents: Sequence[AgentSummary] = (), team: Sequence[SubAgentRecord | TaskRecord] = ()
) -> list[CompletionItem]:
    """Return the arguments of a command that match, best first.

    `agents` are those that /role can name, `team` the sub-agents that /focus can name, and /loop if they are live.
    """
    command = find_slash_command(target.command)
    name = command.name if command is not None else ""
    words = dict.fromkeys(_ARGUMENT_WORDS.get(name, ()), "")
    live = {agent.id: agent.description for agent in team if isinstance(agent, SubAgentRecord)}
    if name == "permissions":
        words = _PERMISSION_MODES
    elif name == "role":
        words = {agent.name: agent.description for agent in agents if agent.is_role}
    elif name == "focus":
        idle = {task.agent: task.description for task in team if isinstance(task, TaskRecord)}
        words = {**live, **idle, "main": "The main agent."}
    elif name == "loop":
        words |= {f"@{agent}": about for agent, about in live.items()}
    scored = [(score, word) for word in words if (score := score_match(target.letters, word))]
    return [
        CompletionItem(word, word, help=words[word], is_runnable=not word.startswith("@"))
        for _, word in sorted(scored, key=lambda item: -item[0])
    ]


def make_file_items(paths: Sequence[str]) -> list[CompletionItem]:
    return [_make_file_item(path) for path in paths]


def _make_file_item(path: str) -> CompletionItem:
    folder = path.endswith("/")
    if any(char.isspace() for char in path) and '"' not in path:
        return CompletionItem(path, f'@"{path}' if folder else f'@"{path}" ', continues=folder)
    return CompletionItem(path, f"@{path}" if folder else f"@{path} ", continues=folder)
