"""Data types for a parsed command line: words, redirections, simple commands, and the analysis of all of them.

Tree-sitter's bash grammar parses the text, and the result is checked against the text piece by piece. Anything
uncertain is reported, and callers must then assume the worst. Commands inside substitutions, groups and here-documents
are included.
"""

from functools import cached_property

from msgspec import Struct

from odin.core.format import clip

MAX_COMMAND_CHARS = 10_000


def split_names(text: str) -> frozenset[str]:
    """Return the whitespace-separated names of a text as a set."""
    return frozenset(text.split())


def quote_short(text: str, limit: int = 60) -> str:
    """Return a part of a command quoted, at most `limit` characters of it."""
    return repr(clip(text, limit))


class Unparseable(Exception):
    """The text cannot be parsed reliably; `reason` says why, as a clause ("it ...")."""

    @property
    def reason(self) -> str:
        return str(self.args[0]) if self.args else "it cannot be parsed"


class ShellWord(Struct, frozen=True):
    """One word after quote removal. `expands`: the shell would still substitute something else for it.

    `splits`: what it substitutes may be several words, or none.
    """

    text: str
    expands: bool = False
    glob: bool = False
    quoted: bool = False
    splits: bool = False

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
    """One simple command with its assignments.

    `operator` is the operator before it. `nested`: it is inside another word or group. `folder` is the folder it would
    run in if every `cd` before it succeeds: "" for the starting folder, a relative or absolute path or one starting
    with `~`, or None if unknown. It serves to find harm, not to prove that there is none.
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

    `plain`: the text has only simple commands of literal words and globs, and operators (see `parser`). `bodies` are
    here-documents. `doubts` are reasons why other commands may run, too. `assigned` are the values assigned to
    variables, None for a value that is not literal; `assigned_words` are the same as words. `functions` are the names
    of the functions defined.
    """

    commands: tuple[SimpleCommand, ...]
    plain: bool
    bodies: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str | None], ...] = ()
    functions: tuple[str, ...] = ()
    assigned_words: tuple[tuple[str, ShellWord], ...] = ()


def has_brace_expansion(bare: str) -> bool:
    """True if unquoted braces may expand to several words: `{` followed by a comma or two dots."""
    insides = (piece.partition("{")[2] for piece in bare.split("}"))
    return any("," in inside or ".." in inside for inside in insides)


class ExtractedCommand(Struct, frozen=True, dict=True):
    """One command that would run. `is_inner`: it was found inside another command, not at the top level.

    `folder` is the folder it would run in, as in `SimpleCommand.folder`. `stdin_texts` are the texts on its standard
    input that are known from the command line. `placeholder` is a text in its words that the outer command replaces
    (`{}`); `is_open`: the outer command adds more words, which are only known when it runs.
    """

    words: tuple[ShellWord, ...]
    is_inner: bool = False
    folder: str | None = ""
    stdin_texts: tuple[str, ...] = ()
    placeholder: str = ""
    is_open: bool = False

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @cached_property
    def name(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""


class ShellFile(Struct, frozen=True):
    """A file that a shell is told to run. `folder` is the folder of the command, as in `SimpleCommand.folder`.

    `position` is the number of commands found up to and including the one that runs it.
    """

    path: str
    folder: str | None
    position: int


class CommandAnalysis(Struct, frozen=True):
    """Every command that a text would run, including those that other programs are told to run.

    `is_complete`: no command is missing; otherwise `reason` says why some may be, as a clause ("it ...", "a ...").
    `redirects` are those that open a file, `writes` those that open it for writing. `script` is None if the text could
    not be parsed. `unreadable_texts` are scripts inside the command that could not be parsed. `doubts` are the reasons
    why commands may be missing that neither `script_files` nor an unknown program name explains.
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
    doubts: tuple[str, ...] = ()
    script_files: tuple[ShellFile, ...] = ()

    @property
    def writes(self) -> tuple[Redirect, ...]:
        return tuple(item for item in self.redirects if item.op not in ("<", "<&"))
