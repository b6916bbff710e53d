"""The words of a syntax tree, checked against the text they were made from.

The grammar is right about most commands and wrong about some. So nothing is taken from it that the text does not bear
out: pieces that touch are one word, pieces of different words have blanks between them, and no character is left over.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odin.policy.command.shapes import ShellWord, split_names
from odin.policy.command.words import WordBuilder

if TYPE_CHECKING:
    from tree_sitter import Node

_BARE_NODES = split_names(
    "word number regex extglob_pattern variable_name test_operator special_variable_name = == =~ != ! -a -o [ ]"
)
WORD_NODES = _BARE_NODES | split_names(
    "raw_string string ansi_c_string translated_string concatenation command_name simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression $"
)
_SUBSTITUTION_NODES = frozenset(("command_substitution", "process_substitution"))
_PLAIN_PARAMETER = re.compile(r"\$\{[#]?(?:[A-Za-z_]\w*|\d+|[@*#?$!-])\}")
_CLEAR_PARAMETER = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-+?=]|##?|%%?|//?|\^\^?|,,?)(?![@!])")
_AFTER_DOLLAR = (b"", *(bytes([code]) for code in b" \t\n;&|)/.,:=+%"))
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ESCAPED = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_TABBED = re.compile(r"(?:\\[tn])+")
_ARITHMETIC = re.compile(r"[A-Za-z_$`\[]")


class WordReader(ABC):
    """Puts words together. What could run unseen becomes a doubt; what the tree got wrong, a flaw."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.doubts: list[str] = []
        self.flaw = ""

    def note_doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)

    def note_flaw(self, reason: str) -> None:
        self.flaw = self.flaw or reason

    def text_of(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    @abstractmethod
    def read_substitution(self, node: "Node") -> None:
        """Read the commands inside of `$( )`, backticks, `<( )` or `>( )`."""
        ...

    @abstractmethod
    def read_nested_text(self, text: str) -> None:
        """Read a text of its own that was quoted inside of this one."""
        ...

    def is_touching(self, start: int, end: int) -> bool:
        """Whether nothing lies between two places, or only line continuations."""
        return start == end or not self.source[start:end].replace(b"\\\n", b"")

    def check_gap(self, start: int, end: int, *, lines: bool = False) -> None:
        """Hold the grammar to what lies between two nodes: blanks, and newlines where they mean nothing."""
        gap = self.source[start:end]
        if gap and gap.replace(b"\\\n", b"").strip(b" \t\n" if lines else b" \t"):
            self.note_flaw("it holds something that is no part of any command")

    def read_words(self, nodes: Sequence["Node"]) -> list[ShellWord]:
        """The words that these nodes make, where those that touch are one."""
        made: list[ShellWord] = []
        group: list[Node] = []
        for node in nodes:
            if group and not self.is_touching(group[-1].end_byte, node.start_byte):
                self.check_gap(group[-1].end_byte, node.start_byte)
                made.append(self.read_word(group))
                group = []
            group.append(node)
        if group:
            made.append(self.read_word(group))
        return made

    def read_word(self, nodes: Sequence["Node"]) -> ShellWord:
        builder = WordBuilder()
        self._read_pieces(nodes, builder)
        return builder.build()

    def _read_pieces(self, nodes: Sequence["Node"], builder: WordBuilder) -> None:
        for index, node in enumerate(nodes):
            if index and not self.is_touching(nodes[index - 1].end_byte, node.start_byte):
                self.note_flaw("the parts of a word are not together")
            if node.type == "$":
                self._read_dollar(node, nodes[index + 1 : index + 2], builder)
            else:
                self._read_piece(node, builder)

    def _read_dollar(self, node: "Node", following: Sequence["Node"], builder: WordBuilder) -> None:
        """A dollar sign that the grammar takes for text: it is, where nothing follows that could be a name."""
        if following and following[0].type in ("string", "raw_string"):
            builder.expands = True
            return
        builder.add_quoted(self.text_of(node))
        if self.text_of(node) != "$" or self.source[node.end_byte : node.end_byte + 1] not in _AFTER_DOLLAR:
            builder.expands = True

    def _read_piece(self, node: "Node", builder: WordBuilder) -> None:
        kind = node.type
        if kind in _BARE_NODES:
            if not builder.add_bare(self.text_of(node)):
                self.note_flaw("a word holds a character that should have ended it")
        elif kind == "raw_string":
            builder.add_quoted(self.text_of(node)[1:-1])
        elif kind == "string":
            self._read_string(node, builder)
        elif kind in ("concatenation", "command_name", "translated_string"):
            self._read_pieces(node.children, builder)
        elif kind == "ansi_c_string":
            inner = self.text_of(node)[2:-1]
            (builder.add_quoted if _TABBED.fullmatch(inner) else builder.add_expansion)(_resolve_ansi(inner))
        elif kind in (
            "simple_expansion",
            "expansion",
            "arithmetic_expansion",
            "brace_expression",
            "array",
            "subscript",
        ):
            self.inspect_node(node)
            builder.add_expansion(self.text_of(node))
        elif kind in _SUBSTITUTION_NODES:
            self.read_substitution(node)
            builder.add_expansion(self.text_of(node))
        else:
            self.note_flaw(f"it holds {_quote_short(self.text_of(node))} where a word should be")
            self.inspect_node(node)

    def _read_string(self, node: "Node", builder: WordBuilder) -> None:
        """Double quotes: whatever is not an expansion is literal text, also where the tree has left it out."""
        children = node.children
        builder.add_quoted("")
        at = children[0].end_byte
        for child in children[1:]:
            if child.type == "string_content":
                continue
            if child.type == "$" and child.end_byte < node.end_byte:
                continue
            closing = child.type == '"' and child.end_byte == node.end_byte
            literal = self.source[at : child.end_byte - 1 if closing else child.start_byte].decode("utf-8", "replace")
            if literal:
                self._read_literal(literal, builder)
            at = child.end_byte
            if closing:  # the quote may have taken the blanks before it
                break
            self._read_piece(child, builder)

    def _read_literal(self, text: str, builder: WordBuilder) -> None:
        if re.search(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({@*#?$!-])", text):
            self.note_flaw("quoted text holds an expansion that was not recognised")
        builder.add_double_quoted(text)

    def inspect_node(self, node: "Node") -> None:
        """Find what a piece of text runs that is otherwise only data."""
        kind = node.type
        if kind in _SUBSTITUTION_NODES:
            self.read_substitution(node)
            return
        if kind == "expansion":
            self._check_parameter(node)
        elif kind == "arithmetic_expansion":
            self.check_arithmetic(self.text_of(node))
        elif kind == "subscript":
            self._check_subscript(node)
        elif kind == "ERROR" or (node.is_missing and node.child_count == 0):
            self.note_flaw("it is not complete, or not in the syntax of a shell")
        self.inspect_nodes(node.children)

    def inspect_nodes(self, nodes: Iterable["Node"]) -> None:
        for node in nodes:
            if node.child_count or node.type in ("ERROR", "expansion"):
                self.inspect_node(node)

    def _check_parameter(self, node: "Node") -> None:
        text = self.text_of(node)
        if _PLAIN_PARAMETER.fullmatch(text):
            return
        if any(char in text for char in "'\"\\`"):
            self.note_doubt("a parameter expansion holds quotes")
            for inner in re.findall(r"`([^`]*)`", text):
                self.read_nested_text(inner)
        elif not _CLEAR_PARAMETER.match(text):
            self.note_doubt("a parameter expansion may run what a variable holds")

    def _check_subscript(self, node: "Node") -> None:
        if not re.fullmatch(r"\w+\[(?:\d+|@|\*)\]", self.text_of(node)):
            self.note_doubt("the index of an array may run what a variable holds")

    def check_arithmetic(self, text: str) -> None:
        """Arithmetic evaluates the text that variables hold, commands in it included."""
        if _ARITHMETIC.search(text.removeprefix("$[").removeprefix("$")):
            self.note_doubt("arithmetic may run what a variable holds")


def _resolve_ansi(text: str) -> str:
    """`$'...'` with its escapes resolved, as far as that is possible. What is no escape stays as it is."""
    return _ESCAPE.sub(lambda found: _resolve_escape(found[1]), text)


def _resolve_escape(code: str) -> str:
    kind, rest = code[0], code[1:]
    if rest and kind in "xuU":
        number = int(rest, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else f"\\{code}"
    if kind in "01234567":
        return chr(int(code, 8) & 0xFF)
    if kind == "c":
        return chr(ord(rest) & 0x1F)
    return _ESCAPED.get(code, f"\\{code}")


def _quote_short(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")
