"""A command line as tree-sitter's grammar of bash reads it, flattened into the simple commands it would run."""

import re
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from odin.policy.command.compound import MAX_DEPTH, CompoundReader
from odin.policy.command.redirects import REDIRECTS, Open
from odin.policy.command.shapes import MAX_CHARS, Script

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_AT_ONCE = 3_000
"""How much is read at once without a look at it: the work grows with the square of the length where it is broken."""
_SKIMMED = 5_000
_MAX_DOCUMENTS = 10
_DOCUMENT = re.compile(r"(<<-?[ \t]*(['\"]?)(\w+)\2[^\n]*\n)(?s:.*?\n)??(\t*\3(?=\n|$))")
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?<!<< )'[^']*'|(?<!<<)(?<!<<-)(?<!<< )\"(?:[^\"\\$`]|\\.)*\"", re.DOTALL)

_AFTER_BRACE = re.compile(rb"(\{[0-9]*(?:\.\.[0-9]*)?)([\xc4-\xf4][\x80-\xbf]*)")
"""Where the grammar looks for a digit in a table of 256 characters, and finds a character that the table does not have:
what it reads there is not its own, and may end the whole program."""


class _Parsers(threading.local):
    """A parser of its own for every thread: one parser must not read two texts at once."""

    @cached_property
    def bash(self) -> "Parser":
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        return Parser(Language(tree_sitter_bash.language()))


_PARSERS = _Parsers()


def read(text: str, folder: str | None = "") -> tuple[Script, str]:
    """The commands of a text as far as they can be found, and why they may not be all of it, or ""."""
    if len(text) > MAX_CHARS:
        return _skimmed(text), "it is too long to be read"
    if len(text) > _AT_ONCE and not _sound(text):
        return _skimmed(text), "it is too long to be read at once, and it has errors or too many parts"
    reader = _TreeReader(text.encode("utf-8", "replace"), folder, 0)
    reader.program()
    script = Script(
        tuple(reader.commands),
        plain=False,
        bodies=tuple(reader.bodies),
        doubts=tuple(reader.doubts),
        assigned=tuple(reader.assigned),
        functions=tuple(reader.functions),
        given=tuple(reader.given),
    )
    return script, reader.flaw


def _skimmed(text: str) -> Script:
    """The commands of an overlong text, read in short pieces."""
    pieces = re.findall(r"(?s).{1,400}(?:[;\n]|$)|.{1,400}", text[:_SKIMMED] + text[_SKIMMED:][-_SKIMMED:])
    commands = [simple for piece in pieces for simple in read(piece)[0].commands]
    return Script(tuple(commands), plain=False)


def _sound(text: str) -> bool:
    """Whether a long text is one of few commands with much text in quotes, and those commands can be read."""
    if text.count("<<") > _MAX_DOCUMENTS:
        return False
    bones = _QUOTED.sub("''", _DOCUMENT.sub(r"\1\4", text))
    if len(bones) > _AT_ONCE:
        return False
    return not _PARSERS.bash.parse(_tamed(bones.encode("utf-8", "replace"))).root_node.has_error


def _tamed(source: bytes) -> bytes:
    """The text without what the grammar must not be given."""
    return _AFTER_BRACE.sub(lambda found: found[1] + b"_" * len(found[2]), source)


def _is_quoted(root: "Node", at: int) -> bool:
    """Whether the byte there is text and nothing else."""
    node = root.descendant_for_byte_range(at, at + 1)
    return node is not None and node.type in ("raw_string", "string_content")


class _TreeReader(CompoundReader):
    """Reads a whole text, and the texts inside of it."""

    def program(self, *, nested: bool = False) -> None:
        source = _tamed(self.source)
        root = _PARSERS.bash.parse(source).root_node
        if not all(_is_quoted(root, found.start(2)) for found in _AFTER_BRACE.finditer(self.source)):
            self.broken("it has an unusual character right after a brace")
        children = root.children
        if children:
            self.blank(0, children[0].start_byte, lines=True)
            self.blank(children[-1].end_byte, len(self.source), lines=True)
        elif self.source.replace(b"\\\n", b"").strip(b" \t\n"):
            self.broken("it cannot be read")
        if root.has_error:
            self._errors(root)
        self._statements(children, "", nested=nested)

    def _errors(self, root: "Node") -> None:
        """Any error makes the text unclear, but one: `<>`, which the grammar does not know (see `_redirect`)."""
        left = [root]
        while left:
            node = left.pop()
            if node.is_missing or (node.type == "ERROR" and self.text(node) != ">"):
                self.broken("it is not complete, or not in the syntax of a shell")
                return
            left += [child for child in node.children if child.has_error]

    def substitution(self, node: "Node") -> None:
        folder = self.folder
        children = node.children
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.broken("it is nested too deeply")
        elif children[0].type == "`":
            body = self.text(node)[1:-1]
            self.again(re.sub(r"\\([\\`$])", r"\1", body))
        elif children[0].type not in ("$(", "<(", ">(") or children[-1].type != ")":
            self.unknown(node)
        elif len(children) > 2:
            self._substituted(children)
        self.depth -= 1
        self.folder = folder

    def _substituted(self, children: Sequence["Node"]) -> None:
        inner = children[1:-1]
        if inner[0].type in REDIRECTS:
            opened = Open([], [], [])
            for child in inner:
                self._redirect(child, opened)
            self._flush(opened, "", nested=True)
            return
        self._body(children, "")

    def again(self, text: str) -> None:
        """Read a text of its own that was quoted inside of this one."""
        if self.depth > MAX_DEPTH or len(text) > _AT_ONCE:
            self.broken("it is nested too deeply")
            return
        inner = _TreeReader(text.encode("utf-8", "replace"), self.folder, self.depth + 1)
        inner.program(nested=True)
        self.commands += inner.commands
        self.bodies += inner.bodies
        self.assigned += inner.assigned
        self.functions += inner.functions
        self.given += inner.given
        for reason in inner.doubts:
            self.doubt(reason)
        if inner.flaw:
            self.broken(inner.flaw)
