"""A command line taken apart into words, operators and redirections, as a shell would before it runs anything.

Tree-sitter's grammar of bash reads the text, and what it says is checked against the text piece by piece (`tree`,
`pieces`). Where anything is not certain, that is said, and whoever asks must then assume the worst.
"""

from functools import lru_cache

from msgspec.structs import replace

from odin.policy.command.characters import explain_hidden_text
from odin.policy.command.plain import matches_strict_reading
from odin.policy.command.shapes import (
    MAX_COMMAND_CHARS,
    Redirect,
    ShellScript,
    ShellWord,
    SimpleCommand,
    Unparseable,
    split_names,
)
from odin.policy.command.tree import read_script

__all__ = [
    "MAX_COMMAND_CHARS",
    "Redirect",
    "ShellScript",
    "ShellWord",
    "SimpleCommand",
    "Unparseable",
    "examine_command",
    "parse_command",
    "split_names",
]

_MAX_COMMANDS = 500
_MAX_WORDS = 2_000


def parse_command(text: str) -> ShellScript:
    """Read a command line. Raises Unclear when it is too long, cannot be read, or hides characters."""
    script, why = examine_command(text)
    if why:
        raise Unparseable(why)
    return script


@lru_cache(maxsize=128)
def examine_command(text: str) -> tuple[ShellScript, str]:
    """What can be read of a command line, and why it cannot be read with certainty, or ""."""
    script, flaw = read_script(text)
    why = explain_hidden_text(text) or flaw or _check_size(script)
    if why or not matches_strict_reading(text, script.commands):
        return script, why
    return replace(script, plain=True), ""


def _check_size(script: ShellScript) -> str:
    """Whether there is more in a text than anybody would read before saying yes to it."""
    if len(script.commands) > _MAX_COMMANDS or sum(len(simple.words) for simple in script.commands) > _MAX_WORDS:
        return f"it has too many parts to be read (at most {_MAX_COMMANDS} commands and {_MAX_WORDS} words)"
    return ""
