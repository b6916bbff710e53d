"""What was found in a command line: every command it would run, and whether these are all."""

from msgspec import Struct

from odin.policy.command.shapes import Redirect, ShellScript, ShellWord


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
