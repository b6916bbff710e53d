"""Shell words read from tree-sitter nodes, checked against the source text.

The grammar is wrong about some commands, so nothing is taken from it that the text does not confirm: adjacent nodes
form one word, nodes of different words are separated by blanks, and no character is left over.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from odin.policy.commands.syntax import ShellWord, SimpleCommand, has_brace_expansion, quote_short, split_names

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

_TILDE = re.compile(r"(?:^|[=:])~")
_HISTORY = re.compile(r"![\w!?#-]")
_MANY_WORDS = re.compile(r"\$@|\$\{[^}]*@")
_BREAKING = frozenset(" \t\n\"'`;&|<>()$")


class WordBuilder:
    """Builds a word from its quoted and unquoted pieces."""

    def __init__(self) -> None:
        self._chars: list[str] = []
        self._bare: list[str] = []
        self.expands = False
        self.in_quotes = False
        self._quoted = False
        self._splits = False

    def add_bare(self, text: str) -> bool:
        """Add unquoted text. Return False if it contains a character that would have ended the word."""
        if "\\" not in text:
            self._chars.append(text)
            self._bare.append(text)
            return _BREAKING.isdisjoint(text)
        valid = True
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\\":
                next_char = text[at + 1 : at + 2]
                if next_char != "\n":
                    self.add_quoted(next_char)
                valid = valid and bool(next_char)
                at += 2
                continue
            valid = valid and char not in _BREAKING
            self._chars.append(char)
            self._bare.append(char)
            at += 1
        return valid

    def add_quoted(self, text: str) -> None:
        """Add literal text in which no character is special."""
        self._quoted = True
        self._bare.append("\0")
        if text:
            self._chars.append(text)

    def add_double_quoted(self, text: str) -> None:
        """Add literal text from between double quotes."""
        if "!" in text and _HISTORY.search(text):
            self.expands = True
        self.add_quoted(re.sub(r'\\(["$`\\])', r"\1", text.replace("\\\n", "")) if "\\" in text else text)

    def add_expansion(self, text: str) -> None:
        """Add text that the shell will replace. Outside quotes, and for `$@`, the result may be several words."""
        self.add_translation(text)
        self._splits = self._splits or not self.in_quotes or _MANY_WORDS.match(text) is not None

    def add_translation(self, text: str) -> None:
        """Add the text of `$'...'`, which stays one piece."""
        self.expands = True
        self._bare.append("\0")
        self._chars.append(text)

    def build(self) -> ShellWord:
        text = "".join(self._chars)
        bare = "".join(self._bare)
        glob = "*" in bare or "?" in bare or ("[" in bare and "]" in bare[bare.index("[") :])
        splits = self._splits or ("{" in bare and has_brace_expansion(bare))
        return ShellWord(text, self.expands or _is_changed_by_shell(bare), glob, self._quoted, splits)


def _is_changed_by_shell(bare: str) -> bool:
    """True if the shell may replace this unquoted text, in which quoted pieces are shown as NUL."""
    if not bare:
        return False
    if bare[0] in "=^" and len(bare) > 1 and bare not in ("==", "=~"):
        return True
    if "~" in bare and _TILDE.search(bare):
        return True
    if "{" in bare and has_brace_expansion(bare):
        return True
    return "!" in bare and _HISTORY.search(bare) is not None


class ScriptState:
    """The source text and everything read from it so far.

    `doubts` are reasons why commands may run that were not found. `flaw` is the first reason why the tree cannot be
    trusted. `folder` is the current directory after each `cd` read so far, as in `SimpleCommand.folder`.
    """

    def __init__(self, source: bytes, folder: str | None, depth: int) -> None:
        self.source = source
        self.folder = folder
        self.depth: int = depth
        self.commands: list[SimpleCommand] = []
        self.bodies: list[str] = []
        self.assigned: list[tuple[str, str | None]] = []
        self.assigned_words: list[tuple[str, ShellWord]] = []
        self.functions: list[str] = []
        self.doubts: list[str] = []
        self.flaw = ""

    def note_doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)

    def note_flaw(self, reason: str) -> None:
        self.flaw = self.flaw or reason

    def get_text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def is_touching(self, start: int, end: int) -> bool:
        """True if nothing but line continuations lies between two positions."""
        return start == end or not self.source[start:end].replace(b"\\\n", b"")

    def check_gap(self, start: int, end: int, *, lines: bool = False) -> None:
        """Note a flaw unless only blanks, or with `lines` also newlines, lie between two nodes."""
        gap = self.source[start:end]
        if gap and gap.replace(b"\\\n", b"").strip(b" \t\n" if lines else b" \t"):
            self.note_flaw("it contains text that is not part of any command")

    def check_comment(self, node: "Node") -> None:
        """Note a flaw if bash would not start a comment at this position."""
        at = node.start_byte
        while self.source[at - 2 : at] == b"\\\n" and at > 1:
            at -= 2
        separators = b" \t\n;&|()" if at == node.start_byte else b" \t\n"
        escapes = len(self.source[: at - 1]) - len(self.source[: at - 1].rstrip(b"\\")) if at else 0
        if at and (self.source[at - 1] not in separators or escapes % 2):
            self.note_flaw("something looks like a comment but is not one")

    def assign(self, name: str, value: ShellWord, *, adds: bool = False) -> None:
        """Record an assignment. One that `adds` to the old value (`+=`) makes an unknown value."""
        self.assigned.append((name, value.text if value.literal and not adds else None))
        self.assigned_words.append((name, value))

    def merge(self, inner: "ScriptState") -> None:
        """Add everything read from a script nested in this one."""
        self.commands += inner.commands
        self.bodies += inner.bodies
        self.assigned += inner.assigned
        self.functions += inner.functions
        self.assigned_words += inner.assigned_words
        for reason in inner.doubts:
            self.note_doubt(reason)
        if inner.flaw:
            self.note_flaw(inner.flaw)


class NestedReader(Protocol):
    """Reads the commands that a word contains."""

    def read_substitution(self, node: "Node") -> None:
        """Read the commands inside `$( )`, backticks, `<( )` or `>( )`."""
        ...

    def read_nested_text(self, text: str) -> None:
        """Read a script that was quoted inside this one."""
        ...


class WordReader:
    """Builds words from nodes. Code that could run unseen is noted as a doubt, a wrong tree as a flaw."""

    def __init__(self, state: ScriptState, nested: NestedReader) -> None:
        self.state = state
        self._nested = nested

    def read_words(self, nodes: Sequence["Node"]) -> list[ShellWord]:
        """Return the words that these nodes form; adjacent nodes are one word."""
        words: list[ShellWord] = []
        group: list[Node] = []
        for node in nodes:
            if group and not self.state.is_touching(group[-1].end_byte, node.start_byte):
                self.state.check_gap(group[-1].end_byte, node.start_byte)
                words.append(self.read_word(group))
                group = []
            group.append(node)
        if group:
            words.append(self.read_word(group))
        return words

    def read_word(self, nodes: Sequence["Node"]) -> ShellWord:
        builder = WordBuilder()
        self._read_pieces(nodes, builder)
        return builder.build()

    def _read_pieces(self, nodes: Sequence["Node"], builder: WordBuilder) -> None:
        for index, node in enumerate(nodes):
            if index and not self.state.is_touching(nodes[index - 1].end_byte, node.start_byte):
                self.state.note_flaw("the parts of a word are not adjacent")
            if node.type == "$":
                self._read_dollar(node, nodes[index + 1 : index + 2], builder)
            else:
                self._read_piece(node, builder)

    def _read_dollar(self, node: "Node", following: Sequence["Node"], builder: WordBuilder) -> None:
        """Read a `$` that the grammar takes for text. It is text only if no name can follow."""
        if following and following[0].type in ("string", "raw_string"):
            builder.expands = True
            return
        builder.add_quoted(self.state.get_text(node))
        if (
            self.state.get_text(node) != "$"
            or self.state.source[node.end_byte : node.end_byte + 1] not in _AFTER_DOLLAR
        ):
            builder.expands = True

    def _read_piece(self, node: "Node", builder: WordBuilder) -> None:
        kind = node.type
        if kind in _BARE_NODES:
            if not builder.add_bare(self.state.get_text(node)):
                self.state.note_flaw("a word contains a character that should end it")
        elif kind == "raw_string":
            builder.add_quoted(self.state.get_text(node)[1:-1])
        elif kind == "string":
            self._read_string(node, builder)
        elif kind in ("concatenation", "command_name", "translated_string"):
            self._read_pieces(node.children, builder)
        elif kind == "ansi_c_string":
            inner = self.state.get_text(node)[2:-1]
            (builder.add_quoted if _TABBED.fullmatch(inner) else builder.add_translation)(_resolve_ansi(inner))
        elif kind in (
            "simple_expansion",
            "expansion",
            "arithmetic_expansion",
            "brace_expression",
            "array",
            "subscript",
        ):
            self.inspect_node(node)
            builder.add_expansion(self.state.get_text(node))
        elif kind in _SUBSTITUTION_NODES:
            self._nested.read_substitution(node)
            builder.add_expansion(self.state.get_text(node))
        else:
            self.state.note_flaw(f"it contains {quote_short(self.state.get_text(node), 20)} where a word is expected")
            self.inspect_node(node)

    def _read_string(self, node: "Node", builder: WordBuilder) -> None:
        """Read a double-quoted string. Everything but expansions is literal, including text missing from the tree."""
        children = node.children
        builder.add_quoted("")
        builder.in_quotes = True
        at = children[0].end_byte
        for child in children[1:]:
            if child.type == "string_content":
                continue
            if child.type == "$" and child.end_byte < node.end_byte:
                continue
            closing = child.type == '"' and child.end_byte == node.end_byte
            literal = self.state.source[at : child.end_byte - 1 if closing else child.start_byte].decode(
                "utf-8", "replace"
            )
            if literal:
                self._read_literal(literal, builder)
            at = child.end_byte
            if closing:  # the quote may have taken the blanks before it
                break
            self._read_piece(child, builder)
        builder.in_quotes = False

    def _read_literal(self, text: str, builder: WordBuilder) -> None:
        if re.search(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({@*#?$!-])", text):
            self.state.note_flaw("quoted text contains an expansion that was not recognized")
        builder.add_double_quoted(text)

    def inspect_node(self, node: "Node") -> None:
        """Find the code that runs inside a node that is otherwise only data."""
        kind = node.type
        if kind in _SUBSTITUTION_NODES:
            self._nested.read_substitution(node)
            return
        if kind == "expansion":
            self._check_parameter(node)
        elif kind == "arithmetic_expansion":
            self.check_arithmetic(self.state.get_text(node))
        elif kind == "subscript":
            self._check_subscript(node)
        elif kind == "ERROR" or (node.is_missing and node.child_count == 0):
            self.state.note_flaw("it is not complete, or not valid shell syntax")
        self.inspect_nodes(node.children)

    def inspect_nodes(self, nodes: Iterable["Node"]) -> None:
        for node in nodes:
            if node.child_count or node.type in ("ERROR", "expansion"):
                self.inspect_node(node)

    def _check_parameter(self, node: "Node") -> None:
        text = self.state.get_text(node)
        if _PLAIN_PARAMETER.fullmatch(text):
            return
        if any(char in text for char in "'\"\\`"):
            self.state.note_doubt("a parameter expansion contains quotes")
            for inner in re.findall(r"`([^`]*)`", text):
                self._nested.read_nested_text(inner)
        elif not _CLEAR_PARAMETER.match(text):
            self.state.note_doubt("a parameter expansion may run code from a variable")

    def _check_subscript(self, node: "Node") -> None:
        if not re.fullmatch(r"\w+\[(?:\d+|@|\*)\]", self.state.get_text(node)):
            self.state.note_doubt("an array index may run code from a variable")

    def check_arithmetic(self, text: str) -> None:
        """Note a doubt if arithmetic uses variables: it evaluates their text, including commands."""
        if _ARITHMETIC.search(text.removeprefix("$[").removeprefix("$")):
            self.state.note_doubt("arithmetic may run code from a variable")


def _resolve_ansi(text: str) -> str:
    """Return the text of `$'...'` with its escapes resolved. Invalid escapes stay as they are."""
    return _ESCAPE.sub(lambda match: _resolve_escape(match[1]), text)


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
