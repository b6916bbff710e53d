"""A command line as tree-sitter's grammar of bash reads it, flattened into the simple commands it would run."""

import re
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from odin.policy.command.compound import MAX_DEPTH, StatementReader
from odin.policy.command.redirects import REDIRECT_NODES, PendingCommand
from odin.policy.command.shapes import MAX_COMMAND_CHARS, ShellScript

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MAX_UNCHECKED_CHARS = 3_000
"""How much is read at once without a look at it: the work grows with the square of the length where it is broken."""
_MAX_SKIMMED_CHARS = 5_000
_MAX_HEREDOCS = 10
_HEREDOC = re.compile(r"(<<-?[ \t]*(['\"]?)(\w+)\2[^\n]*\n)(?s:.*?\n)??(\t*\3(?=\n|$))")
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?<!<< )'[^']*'|(?<!<<)(?<!<<-)(?<!<< )\"(?:[^\"\\$`]|\\.)*\"", re.DOTALL)

_AFTER_BRACE = re.compile(rb"(\{[0-9]*(?:\.\.[0-9]*)?)([\xc4-\xf4][\x80-\xbf]*)")
"""Where the grammar looks for a digit in a table of 256 characters, and finds a character that the table does not have:
what it reads there is not its own, and may end the whole program."""


class _ThreadParsers(threading.local):
    """A parser of its own for every thread: one parser must not read two texts at once."""

    @cached_property
    def bash(self) -> "Parser":
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        return Parser(Language(tree_sitter_bash.language()))


_PARSERS = _ThreadParsers()


def read_script(text: str, folder: str | None = "") -> tuple[ShellScript, str]:
    """The commands of a text as far as they can be found, and why they may not be all of it, or ""."""
    if len(text) > MAX_COMMAND_CHARS:
        return _read_overlong(text), "it is too long to be read"
    if len(text) > _MAX_UNCHECKED_CHARS and not _is_sound(text):
        return _read_overlong(text), "it is too long to be read at once, and it has errors or too many parts"
    reader = ScriptReader(text.encode("utf-8", "replace"), folder, 0)
    reader.read_program()
    script = ShellScript(
        tuple(reader.commands),
        plain=False,
        bodies=tuple(reader.bodies),
        doubts=tuple(reader.doubts),
        assigned=tuple(reader.assigned),
        functions=tuple(reader.functions),
        assigned_words=tuple(reader.assigned_words),
    )
    return script, reader.flaw


def _read_overlong(text: str) -> ShellScript:
    """The commands of an overlong text, read in short pieces."""
    pieces = re.findall(
        r"(?s).{1,400}(?:[;\n]|$)|.{1,400}", text[:_MAX_SKIMMED_CHARS] + text[_MAX_SKIMMED_CHARS:][-_MAX_SKIMMED_CHARS:]
    )
    commands = [simple for piece in pieces for simple in read_script(piece)[0].commands]
    return ShellScript(tuple(commands), plain=False)


def _is_sound(text: str) -> bool:
    """Whether a long text is one of few commands with much text in quotes, and those commands can be read."""
    if text.count("<<") > _MAX_HEREDOCS:
        return False
    bones = _QUOTED.sub("''", _HEREDOC.sub(r"\1\4", text))
    if len(bones) > _MAX_UNCHECKED_CHARS:
        return False
    return not _PARSERS.bash.parse(_sanitize_source(bones.encode("utf-8", "replace"))).root_node.has_error


def _sanitize_source(source: bytes) -> bytes:
    """The text without what the grammar must not be given."""
    return _AFTER_BRACE.sub(lambda found: found[1] + b"_" * len(found[2]), source)


def _is_quoted(root: "Node", at: int) -> bool:
    """Whether the byte there is text and nothing else."""
    node = root.descendant_for_byte_range(at, at + 1)
    return node is not None and node.type in ("raw_string", "string_content")


class ScriptReader(StatementReader):
    """Reads a whole text, and the texts inside of it."""

    def read_program(self, *, nested: bool = False) -> None:
        source = _sanitize_source(self.source)
        root = _PARSERS.bash.parse(source).root_node
        if not all(_is_quoted(root, found.start(2)) for found in _AFTER_BRACE.finditer(self.source)):
            self.note_flaw("it has an unusual character right after a brace")
        children = root.children
        if children:
            self.check_gap(0, children[0].start_byte, lines=True)
            self.check_gap(children[-1].end_byte, len(self.source), lines=True)
        elif self.source.replace(b"\\\n", b"").strip(b" \t\n"):
            self.note_flaw("it cannot be read")
        if root.has_error:
            self._check_errors(root)
        self._read_statements(children, "", nested=nested)

    def _check_errors(self, root: "Node") -> None:
        """Any error makes the text unclear, but one: `<>`, which the grammar does not know (see `_redirect`)."""
        left = [root]
        while left:
            node = left.pop()
            if node.is_missing or (node.type == "ERROR" and self.text_of(node) != ">"):
                self.note_flaw("it is not complete, or not in the syntax of a shell")
                return
            left += [child for child in node.children if child.has_error]

    def read_substitution(self, node: "Node") -> None:
        folder = self.folder
        children = node.children
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.note_flaw("it is nested too deeply")
        elif children[0].type == "`":
            body = self.text_of(node)[1:-1]
            self.read_nested_text(re.sub(r"\\([\\`$])", r"\1", body))
        elif children[0].type not in ("$(", "<(", ">(") or children[-1].type != ")":
            self.read_unknown(node)
        elif len(children) > 2:
            self._read_substituted(children)
        self.depth -= 1
        self.folder = folder

    def _read_substituted(self, children: Sequence["Node"]) -> None:
        inner = children[1:-1]
        if inner[0].type in REDIRECT_NODES:
            pending = PendingCommand([], [], [])
            for child in inner:
                self._read_redirect(child, pending)
            self._flush(pending, "", nested=True)
            return
        self._read_body(children, "")

    def read_nested_text(self, text: str) -> None:
        """Read a text of its own that was quoted inside of this one."""
        if self.depth > MAX_DEPTH or len(text) > _MAX_UNCHECKED_CHARS:
            self.note_flaw("it is nested too deeply")
            return
        inner = ScriptReader(text.encode("utf-8", "replace"), self.folder, self.depth + 1)
        inner.read_program(nested=True)
        self.commands += inner.commands
        self.bodies += inner.bodies
        self.assigned += inner.assigned
        self.functions += inner.functions
        self.assigned_words += inner.assigned_words
        for reason in inner.doubts:
            self.note_doubt(reason)
        if inner.flaw:
            self.note_flaw(inner.flaw)
