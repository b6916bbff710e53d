"""The words of a syntax tree, checked against the text they were made from.

The grammar is right about most commands and wrong about some. So nothing is taken from it that the text does not bear
out: pieces that touch are one word, pieces of different words have blanks between them, and no character is left over.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odin.policy.command.shapes import Word, named
from odin.policy.command.words import Making

if TYPE_CHECKING:
    from tree_sitter import Node

_BARE = named(
    "word number regex extglob_pattern variable_name test_operator special_variable_name = == =~ != ! -a -o [ ]"
)
WORDS = _BARE | named(
    "raw_string string ansi_c_string translated_string concatenation command_name simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression $"
)
_SUBSTITUTIONS = frozenset(("command_substitution", "process_substitution"))
_PLAIN_PARAMETER = re.compile(r"\$\{[#]?(?:[A-Za-z_]\w*|\d+|[@*#?$!-])\}")
_CLEAR_PARAMETER = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-+?=]|##?|%%?|//?|\^\^?|,,?)(?![@!])")
_AFTER_DOLLAR = (b"", *(bytes([code]) for code in b" \t\n;&|)/.,:=+%"))
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ESCAPED = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_TABBED = re.compile(r"(?:\\[tn])+")
_ARITHMETIC = re.compile(r"[A-Za-z_$`\[]")


class PieceReader(ABC):
    """Puts words together. What could run unseen becomes a doubt; what the tree got wrong, a flaw."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.doubts: list[str] = []
        self.flaw = ""

    def doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)

    def broken(self, reason: str) -> None:
        self.flaw = self.flaw or reason

    def text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    @abstractmethod
    def substitution(self, node: "Node") -> None:
        """Read the commands inside of `$( )`, backticks, `<( )` or `>( )`."""
        ...

    @abstractmethod
    def again(self, text: str) -> None:
        """Read a text of its own that was quoted inside of this one."""
        ...

    def touching(self, start: int, end: int) -> bool:
        """Whether nothing lies between two places, or only line continuations."""
        return start == end or not self.source[start:end].replace(b"\\\n", b"")

    def blank(self, start: int, end: int, *, lines: bool = False) -> None:
        """Hold the grammar to what lies between two nodes: blanks, and newlines where they mean nothing."""
        gap = self.source[start:end]
        if gap and gap.replace(b"\\\n", b"").strip(b" \t\n" if lines else b" \t"):
            self.broken("it holds something that is no part of any command")

    def words(self, nodes: Sequence["Node"]) -> list[Word]:
        """The words that these nodes make, where those that touch are one."""
        made: list[Word] = []
        group: list[Node] = []
        for node in nodes:
            if group and not self.touching(group[-1].end_byte, node.start_byte):
                self.blank(group[-1].end_byte, node.start_byte)
                made.append(self.word(group))
                group = []
            group.append(node)
        if group:
            made.append(self.word(group))
        return made

    def word(self, nodes: Sequence["Node"]) -> Word:
        making = Making()
        self._pieces(nodes, making)
        return making.word()

    def _pieces(self, nodes: Sequence["Node"], making: Making) -> None:
        for index, node in enumerate(nodes):
            if index and not self.touching(nodes[index - 1].end_byte, node.start_byte):
                self.broken("the parts of a word are not together")
            if node.type == "$":
                self._dollar(node, nodes[index + 1 : index + 2], making)
            else:
                self._piece(node, making)

    def _dollar(self, node: "Node", following: Sequence["Node"], making: Making) -> None:
        """A dollar sign that the grammar takes for text: it is, where nothing follows that could be a name."""
        if following and following[0].type in ("string", "raw_string"):
            making.expands = True
            return
        making.quote(self.text(node))
        if self.text(node) != "$" or self.source[node.end_byte : node.end_byte + 1] not in _AFTER_DOLLAR:
            making.expands = True

    def _piece(self, node: "Node", making: Making) -> None:
        kind = node.type
        if kind in _BARE:
            if not making.bare(self.text(node)):
                self.broken("a word holds a character that should have ended it")
        elif kind == "raw_string":
            making.quote(self.text(node)[1:-1])
        elif kind == "string":
            self._string(node, making)
        elif kind in ("concatenation", "command_name", "translated_string"):
            self._pieces(node.children, making)
        elif kind == "ansi_c_string":
            inner = self.text(node)[2:-1]
            (making.quote if _TABBED.fullmatch(inner) else making.expand)(_ansi(inner))
        elif kind in (
            "simple_expansion",
            "expansion",
            "arithmetic_expansion",
            "brace_expression",
            "array",
            "subscript",
        ):
            self.inside(node)
            making.expand(self.text(node))
        elif kind in _SUBSTITUTIONS:
            self.substitution(node)
            making.expand(self.text(node))
        else:
            self.broken(f"it holds {_shown(self.text(node))} where a word should be")
            self.inside(node)

    def _string(self, node: "Node", making: Making) -> None:
        """Double quotes: whatever is not an expansion is literal text, also where the tree has left it out."""
        children = node.children
        making.quote("")
        at = children[0].end_byte
        for child in children[1:]:
            if child.type == "string_content":
                continue
            if child.type == "$" and child.end_byte < node.end_byte:
                continue
            closing = child.type == '"' and child.end_byte == node.end_byte
            literal = self.source[at : child.end_byte - 1 if closing else child.start_byte].decode("utf-8", "replace")
            if literal:
                self._literal(literal, making)
            at = child.end_byte
            if closing:  # the quote may have taken the blanks before it
                break
            self._piece(child, making)

    def _literal(self, text: str, making: Making) -> None:
        if re.search(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({@*#?$!-])", text):
            self.broken("quoted text holds an expansion that was not recognised")
        making.double(text)

    def inside(self, node: "Node") -> None:
        """Find what a piece of text runs that is otherwise only data."""
        kind = node.type
        if kind in _SUBSTITUTIONS:
            self.substitution(node)
            return
        if kind == "expansion":
            self._parameter(node)
        elif kind == "arithmetic_expansion":
            self.arithmetic(self.text(node))
        elif kind == "subscript":
            self._subscript(node)
        elif kind == "ERROR" or (node.is_missing and node.child_count == 0):
            self.broken("it is not complete, or not in the syntax of a shell")
        self.inside_all(node.children)

    def inside_all(self, nodes: Iterable["Node"]) -> None:
        for node in nodes:
            if node.child_count or node.type in ("ERROR", "expansion"):
                self.inside(node)

    def _parameter(self, node: "Node") -> None:
        text = self.text(node)
        if _PLAIN_PARAMETER.fullmatch(text):
            return
        if any(char in text for char in "'\"\\`"):
            self.doubt("a parameter expansion holds quotes")
            for inner in re.findall(r"`([^`]*)`", text):
                self.again(inner)
        elif not _CLEAR_PARAMETER.match(text):
            self.doubt("a parameter expansion may run what a variable holds")

    def _subscript(self, node: "Node") -> None:
        if not re.fullmatch(r"\w+\[(?:\d+|@|\*)\]", self.text(node)):
            self.doubt("the index of an array may run what a variable holds")

    def arithmetic(self, text: str) -> None:
        """Arithmetic evaluates the text that variables hold, commands in it included."""
        if _ARITHMETIC.search(text.removeprefix("$[").removeprefix("$")):
            self.doubt("arithmetic may run what a variable holds")


def _ansi(text: str) -> str:
    """`$'...'` with its escapes resolved, as far as that is possible. What is no escape stays as it is."""
    return _ESCAPE.sub(lambda found: _unescaped(found[1]), text)


def _unescaped(code: str) -> str:
    kind, rest = code[0], code[1:]
    if rest and kind in "xuU":
        number = int(rest, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else f"\\{code}"
    if kind in "01234567":
        return chr(int(code, 8) & 0xFF)
    if kind == "c":
        return chr(ord(rest) & 0x1F)
    return _ESCAPED.get(code, f"\\{code}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")
