"""The shapes of a command line: words, redirections and simple commands, as a shell sees them before it runs anything.

The text is read by tree-sitter's grammar of bash, and what it says is checked again piece by piece: where anything is
not certain, that is said, and whoever asks must then assume the worst. Commands inside substitutions, groups and
here-documents are read too, so that nothing hides in them.

Words as bash makes them out of quoted and unquoted pieces.

What was found in a command line: every command it would run, and whether these are all.
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

    @property
    def is_read_only(self) -> bool:
        """True for the null device and for one standard stream into another: these change nothing."""
        if not self.target.literal:
            return False
        if self.op == ">&" and self.target.text in ("1", "2"):
            return self.fd in ("", "1", "2")
        return self.op in (">", ">>", "&>", "&>>", ">|", "<") and self.target.text == "/dev/null"


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


CommandStep = tuple[SimpleCommand, str]
"""A command and a folder it may run in. A command that may run in either of two folders makes two steps."""


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


def has_brace_expansion(bare: str) -> bool:
    """Whether braces in unquoted text may stand for several words: after an opening one comes a comma or two dots."""
    insides = (piece.partition("{")[2] for piece in bare.split("}"))
    return any("," in inside or ".." in inside for inside in insides)


class ExtractedCommand(Struct, frozen=True):
    """One command as words, and whether it stands in the text as such or was found inside something.

    `folder` is where it would run, as in `Simple.folder`. `fed` are texts that it reads from its standard input, as far
    as they stand in the command line.
    """

    words: tuple[ShellWord, ...]
    is_inner: bool = False
    folder: str | None = ""
    stdin_texts: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def name(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""


class CommandAnalysis(Struct, frozen=True):
    """`sure` when every command that would run is among the parts; if not, `reason` says why ("it ...", "a ...").

    `redirects` are those that touch a file; `writes` the ones among them that open it for writing. `script` is there
    when the text could be read. `assigned` are the values given to variables, None where it is not a literal, `given`
    the same as words, and `functions` the names that the text defines. `unread` are texts inside of the command that a
    shell would run, and that could not be read.
    """

    commands: tuple[ExtractedCommand, ...]
    is_complete: bool
    redirects: tuple[Redirect, ...] = ()
    script: ShellScript | None = None
    reason: str = ""
    assigned: tuple[tuple[str, str | None], ...] = ()
    functions: tuple[str, ...] = ()
    assigned_words: tuple[tuple[str, ShellWord], ...] = ()
    unreadable_texts: tuple[str, ...] = ()

    @property
    def writes(self) -> tuple[Redirect, ...]:
        return tuple(item for item in self.redirects if item.op not in ("<", "<&"))
