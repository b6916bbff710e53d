"""The shapes of a command line: words, redirections and simple commands, as a shell sees them before it runs anything.

The text is read by tree-sitter's grammar of bash, and what it says is checked again piece by piece: where anything is
not certain, that is said, and whoever asks must then assume the worst. Commands inside substitutions, groups and
here-documents are read too, so that nothing hides in them.
"""

from msgspec import Struct

MAX_COMMAND_CHARS = 10_000


def split_names(text: str) -> frozenset[str]:
    """A set of names written as one text."""
    return frozenset(text.split())


class Unparseable(Exception):
    """The text cannot be read with certainty; `reason` says why, as the end of a sentence ("it ...")."""

    @property
    def reason(self) -> str:
        return str(self.args[0]) if self.args else "it cannot be read"


class ShellWord(Struct, frozen=True):
    """One word after quotes are removed. `expands` when the shell would still put something else in its place."""

    text: str
    expands: bool = False
    glob: bool = False
    quoted: bool = False

    @property
    def literal(self) -> bool:
        return not (self.expands or self.glob)


class Redirect(Struct, frozen=True):
    fd: str
    op: str
    target: ShellWord


class SimpleCommand(Struct, frozen=True):
    """One simple command, its assignments included.

    `after` is the operator before it; `nested` when it stands inside another word or group. `folder` is where it would
    run, supposing that each `cd` before it succeeds: "" where the whole text starts, a path (from there, or full, or
    one that begins with `~`), or None when that cannot be told.
    """

    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...] = ()
    operator: str = ""
    nested: bool = False
    folder: str | None = ""


class ShellScript(Struct, frozen=True):
    """All simple commands of a text, in order.

    `plain` when there is nothing but them and the operators between them, and a second reader saw the same words.
    `bodies` are here-documents. `doubts` say what could run something that is not among the commands. `assigned` are
    the values that variables are given in the text, None where it is not a literal; `given` are the same as words.
    `functions` are the names defined.
    """

    commands: tuple[SimpleCommand, ...]
    plain: bool
    bodies: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str | None], ...] = ()
    functions: tuple[str, ...] = ()
    assigned_words: tuple[tuple[str, ShellWord], ...] = ()
