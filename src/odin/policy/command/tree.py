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

_MAX_CHARS = 50_000


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
    reader = _TreeReader(text.encode("utf-8", "replace"), folder, 0)
    reader.program()
    script = Script(
        tuple(reader.commands),
        plain=False,
        bodies=tuple(reader.bodies),
        doubts=tuple(reader.doubts),
        assigned=tuple(reader.assigned),
        functions=tuple(reader.functions),
    )
    return script, reader.flaw


def _skimmed(text: str) -> Script:
    """The commands of an overlong text, read in short pieces, since the work grows with the square of the length."""
    pieces = re.findall(r"(?s).{1,2000}(?:[;\n]|$)|.{1,2000}", text[:_MAX_CHARS] + text[_MAX_CHARS:][-_MAX_CHARS:])
    commands = [simple for piece in pieces for simple in read(piece)[0].commands]
    return Script(tuple(commands), plain=False)


class _TreeReader(CompoundReader):
    """Reads a whole text, and the texts inside of it."""

    def program(self, *, nested: bool = False) -> None:
        root = _PARSERS.bash.parse(self.source).root_node
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
        if self.depth > MAX_DEPTH:
            self.broken("it is nested too deeply")
            return
        inner = _TreeReader(text.encode("utf-8", "replace"), self.folder, self.depth + 1)
        inner.program(nested=True)
        self.commands += inner.commands
        self.bodies += inner.bodies
        self.assigned += inner.assigned
        self.functions += inner.functions
        for reason in inner.doubts:
            self.doubt(reason)
        if inner.flaw:
            self.broken(inner.flaw)
