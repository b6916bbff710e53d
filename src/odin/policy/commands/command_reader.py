"""The words of a syntax tree, checked against the text they were made from.

The grammar is right about most commands and wrong about some. So nothing is taken from it that the text does not bear
out: pieces that touch are one word, pieces of different words have blanks between them, and no character is left over.

Redirections and here-documents: what they open, and what the text of a here-document runs.

Simple commands: assignments, words and redirections, and the tests that a shell has built in.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from odin.policy.commands.programs import can_change_programs, follow_cd
from odin.policy.commands.syntax import Redirect, ShellWord, SimpleCommand, WordBuilder, split_names

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


REDIRECT_NODES = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_STREAM = re.compile(r"\d+-?|-|[A-Za-z_./~][\w./~-]*")


class PendingCommand(Struct):
    """The simple command that is being read, and what follows it on the line of a here-document."""

    words: list[ShellWord]
    redirects: list[Redirect]
    following: "list[tuple[str, Node]]"


class RedirectReader(WordReader):
    """Reads what stands after `<`, `>` and their kin."""

    @abstractmethod
    def read_unknown(self, node: "Node") -> None:
        """Take what can be read in a node that should not be there as commands, so that nothing forbidden hides."""
        ...

    @abstractmethod
    def is_statement(self, kind: str) -> bool: ...

    @abstractmethod
    def take_body(self, body: str) -> None:
        """Keep the text of a here-document."""
        ...

    def _read_redirect(self, node: "Node", pending: PendingCommand) -> None:
        if node.type == "heredoc_redirect":
            self._read_heredoc(node, pending)
            return
        fd = op = ""
        loose: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.check_gap(end, child.start_byte)
            if child.type == "file_descriptor":
                fd = self.text_of(child)
            elif child.type in WORD_NODES:
                loose.append(child)
            elif child.type == "ERROR" and op == "<" and self.text_of(child) == ">" and end == child.start_byte:
                op = "<>"
            elif not op and not child.is_named:
                op = child.type
            else:
                self.read_unknown(child)
            end = child.end_byte
        words = self.read_words(loose)
        if op in ("<&-", ">&-"):
            words.insert(0, ShellWord("-"))
            op = op[:2]
        if not words or not op:
            self.note_flaw("a redirection has no target")
            return
        if op in (">&", "<&") and not _STREAM.fullmatch(words[0].text):
            self.note_doubt("a redirection may run what its target holds")
        pending.redirects.append(Redirect(fd, op, words[0]))
        pending.words += words[1:]

    def _read_heredoc(self, node: "Node", pending: PendingCommand) -> None:
        op = start = fd = rest = ""
        seen = 0
        finish = node.end_byte
        line_end = node.start_byte
        for child in node.children:
            kind = child.type
            if kind in ("heredoc_body", "heredoc_end"):
                finish = child.start_byte if kind == "heredoc_end" else finish
                seen += sum(item.type == "command_substitution" for item in child.children)
                self.inspect_nodes(child.children)
                continue
            line_end = child.end_byte
            if kind in ("<<", "<<-"):
                op = kind
            elif kind == "file_descriptor":
                fd = self.text_of(child)
            elif kind == "heredoc_start":
                start = self.text_of(child)
            elif kind in ("&&", "||"):
                rest = kind
            elif kind in REDIRECT_NODES:
                self._read_redirect(child, pending)
            elif kind in WORD_NODES:
                pending.words.append(self.read_word([child]))
            elif self.is_statement(kind):
                pending.following.append((rest or "|", child))
            else:
                self.read_unknown(child)
        delimiter = re.sub(r"['\"\\]", "", start)
        pending.redirects.append(Redirect(fd, op, ShellWord(delimiter, quoted=delimiter != start)))
        body = self._read_heredoc_body(op, delimiter, line_end, finish)
        self.take_body(body)
        if start == delimiter:
            self._check_heredoc_expansion(body, seen)

    def _read_heredoc_body(self, op: str, delimiter: str, line_end: int, finish: int) -> str:
        gap = self.source.find(b"\n", line_end)
        body = self.source[gap + 1 : finish].decode("utf-8", "replace") if 0 <= gap < finish else ""
        self.check_gap(line_end, max(gap, line_end))
        lines = [line.lstrip("\t") if op == "<<-" else line for line in body.split("\n")]
        last = self.source[finish:].decode("utf-8", "replace").split("\n", 1)[0]
        if delimiter in lines[:-1] or last != delimiter or lines[-1] or not re.fullmatch(r"\w+", delimiter):
            self.note_flaw("the end of a here-document cannot be told for certain")
        return body

    def _check_heredoc_expansion(self, body: str, seen: int) -> None:
        """A here-document without quotes runs what it holds; `seen` of its substitutions have been read."""
        if "`" in body or re.search(r"\$[\[{]", body) or len(re.findall(r"(?<!\\)\$\(", body)) != seen:
            self.note_doubt("a here-document holds expansions")
        for inner in re.findall(r"(?<!\\)`([^`]*)`", body):
            self.read_nested_text(inner)


_KEYWORDS = split_names("then elif else fi do done esac for case select function { } ]] in if while until ! coproc")
_NUMERIC_TESTS = split_names("-eq -ne -lt -le -gt -ge -v")
SIMPLE_NODES = frozenset(("command", "test_command", "declaration_command", "unset_command"))


class SimpleCommandReader(RedirectReader):
    """Collects simple commands in the order in which they stand."""

    def __init__(self, source: bytes, folder: str | None) -> None:
        super().__init__(source)
        self.folder = folder
        self.commands: list[SimpleCommand] = []
        self.bodies: list[str] = []
        self.assigned: list[tuple[str, str | None]] = []
        self.assigned_words: list[tuple[str, ShellWord]] = []

    @abstractmethod
    def read_statement(self, node: "Node", after: str, *, nested: bool) -> None:
        """Read any command, simple or not."""
        ...

    def take_body(self, body: str) -> None:
        self.bodies += [body]

    def _check_comment(self, node: "Node") -> None:
        at = node.start_byte
        while self.source[at - 2 : at] == b"\\\n" and at > 1:
            at -= 2
        if at and self.source[at - 1] not in b" \t\n;&|()":
            self.note_flaw("something looks like a comment and is none")

    def _read_command(self, node: "Node", after: str, nested: bool) -> None:
        self._finish(self._read_pending(node), after, nested=nested)

    def _read_redirected(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        body = None if children[0].type in REDIRECT_NODES else children[0]
        simple = body is not None and body.type in SIMPLE_NODES
        pending = self._read_pending(body) if body is not None and simple else PendingCommand([], [], [])
        if body is not None and not simple:
            self.read_statement(body, after, nested=nested)
        end = body.end_byte if body is not None else node.start_byte
        for child in children[0 if body is None else 1 :]:
            if child.type in REDIRECT_NODES:
                self.check_gap(end, child.start_byte)
                if simple and end == child.start_byte:
                    self._drop_named_descriptor(pending)
                self._read_redirect(child, pending)
            elif child.type == "comment":
                self._check_comment(child)
            else:
                self.read_unknown(child)
            end = child.end_byte
        if body is not None and not pending.following and self._is_for_last(body):
            last = self.commands.pop()
            self.commands.append(replace(last, redirects=(*last.redirects, *pending.redirects)))
            return
        self._finish(pending, after, nested=nested)

    @staticmethod
    def _is_for_last(body: "Node") -> bool:
        """`a || b 2>x`: the grammar gives a redirection to the whole, but it is only meant for the last command."""
        last = body
        while last.type in ("list", "pipeline", "redirected_statement") and last.children:
            last = last.children[0 if last.type == "redirected_statement" else -1]
        return body.type in ("list", "pipeline") and last.type == "command"

    def _finish(self, pending: PendingCommand, after: str, *, nested: bool) -> None:
        self._flush(pending, after, nested=nested)
        for joint, child in pending.following:
            folder = self.folder
            self.read_statement(child, joint, nested=nested)
            self.folder = folder if joint == "|" else self.folder

    @staticmethod
    def _drop_named_descriptor(pending: PendingCommand) -> None:
        """`{name}>file` opens a file for a variable; its name is no word of the command."""
        if pending.words and re.fullmatch(r"\{\w+\}", pending.words[-1].text):
            pending.words.pop()

    def _read_pending(self, node: "Node") -> PendingCommand:
        pending = PendingCommand([], [], [])
        if node.type == "test_command":
            pending.words = self._read_test(node)
            return pending
        loose: list[Node] = []
        end = node.start_byte
        before = ""
        for child in node.children:
            self.check_gap(end, child.start_byte)
            kind = child.type
            apart = before not in REDIRECT_NODES and before != "variable_assignment"
            if not apart and kind not in REDIRECT_NODES and self.is_touching(end, child.start_byte):
                self.note_flaw("a redirection or an assignment and a word are not apart")
            before = kind
            if kind in WORD_NODES or (not child.is_named and node.type != "command"):
                loose.append(child)
            else:
                pending.words += self._read_plain_words(node, loose)
                loose = []
                self._read_special(child, pending)
            end = child.end_byte
        pending.words += self._read_plain_words(node, loose)
        return pending

    def _read_plain_words(self, node: "Node", loose: Sequence["Node"]) -> list[ShellWord]:
        if loose and not loose[0].is_named and node.type != "command" and loose[0].child_count == 0:
            return [ShellWord(self.text_of(loose[0])), *self.read_words(loose[1:])]
        return self.read_words(loose)

    def _read_special(self, child: "Node", pending: PendingCommand) -> None:
        if child.type == "variable_assignment":
            pending.words.append(self._read_assignment(child))
        elif child.type in REDIRECT_NODES:
            if pending.words and self.source[child.start_byte - 1 : child.start_byte] == b"}":
                self._drop_named_descriptor(pending)
            self._read_redirect(child, pending)
        elif child.type == "comment":
            self._check_comment(child)
        elif child.type == "array":
            self.inspect_node(child)
            pending.words.append(ShellWord(self.text_of(child), expands=True))
        else:
            self.read_unknown(child)

    def _read_assignment(self, node: "Node") -> ShellWord:
        children = node.children
        name = self.text_of(children[0])
        if children[0].type == "subscript":
            self.inspect_node(children[0])
            self.note_doubt("the index of an array may run what a variable holds")
        value = self._read_value(children[2:])
        if can_change_programs(name, value.text if value.literal else None):
            self.note_doubt(f"it changes {name}, on which it depends what other programs do")
        self._assign(name, value)
        whole = name + self.text_of(children[1]) + value.text
        return ShellWord(whole, value.expands or children[0].type == "subscript", value.glob, value.quoted)

    def _assign(self, name: str, value: ShellWord) -> None:
        self.assigned.append((name, value.text if value.literal else None))
        self.assigned_words.append((name, value))

    def _read_value(self, nodes: Sequence["Node"]) -> ShellWord:
        if not nodes:
            return ShellWord("")
        if nodes[0].type == "array":
            self.inspect_nodes(nodes)
            return ShellWord(self.text_of(nodes[0]), expands=True)
        value = self.read_word(nodes)
        bare = self.text_of(nodes[0])
        return ShellWord(value.text, value.expands or bare.startswith("~") or ":~" in bare, value.glob, value.quoted)

    def _read_assignments(self, node: "Node", after: str, nested: bool) -> None:
        nodes = node.children if node.type == "variable_assignments" else [node]
        words = [self._read_assignment(child) for child in nodes if child.type == "variable_assignment"]
        if len(words) != len(nodes):
            self.read_unknown(node)
        self._flush(PendingCommand(words, [], []), after, nested=nested)

    def _read_test(self, node: "Node") -> list[ShellWord]:
        """`[ ]` and `[[ ]]`. In the first, operators that the grammar accepts would end the command or open a file."""
        leaves: list[Node] = []
        self._collect_leaves(node, leaves)
        double = leaves[0].type == "[["
        if leaves[0].type == "((":
            self.check_arithmetic(self.text_of(node))
            return [ShellWord("((")]
        for leaf in leaves:
            if leaf.type not in WORD_NODES and not (
                double and leaf.type in ("[[", "]]", "&&", "||", "(", ")", "<", ">")
            ):
                self.note_flaw(f"{self.text_of(leaf)!r} stands inside of a test")
        words = [self._read_leaf(group) for group in self._group_touching(leaves, lines=double)]
        texts = [word.text for word in words]
        if double and (not _NUMERIC_TESTS.isdisjoint(texts) or any("[" in text for text in texts[1:-1])):
            self.note_doubt("a numeric test may run what its words hold")
        return words

    def _collect_leaves(self, node: "Node", found: "list[Node]") -> None:
        for child in node.children:
            if child.type in ("unary_expression", "binary_expression", "parenthesized_expression"):
                self._collect_leaves(child, found)
            elif child.type == "ERROR":
                self.read_unknown(child)
            else:
                found.append(child)

    def _group_touching(self, nodes: Sequence["Node"], *, lines: bool) -> "list[list[Node]]":
        groups: list[list[Node]] = []
        for node in nodes:
            if groups and self.is_touching(groups[-1][-1].end_byte, node.start_byte):
                groups[-1].append(node)
                continue
            if groups:
                self.check_gap(groups[-1][-1].end_byte, node.start_byte, lines=lines)
            groups.append([node])
        return groups

    def _read_leaf(self, group: Sequence["Node"]) -> ShellWord:
        expression = len(group) == 1 and group[0].type == "regex"
        if not expression and all(node.type in WORD_NODES for node in group):
            return self.read_word(group)
        if expression and re.search(r"`|\$[({\[]", self.text_of(group[0])):
            self.note_doubt("a pattern holds an expansion")
        self.inspect_nodes(group)
        return ShellWord("".join(self.text_of(node) for node in group))

    def _flush(self, pending: PendingCommand, after: str, *, nested: bool) -> None:
        words = pending.words
        if not words and not pending.redirects:
            return
        self.commands.append(SimpleCommand(tuple(words), tuple(pending.redirects), after, nested, self.folder))
        if words:
            self._check_keyword(words[0])
            home = not any(name == "HOME" for name, _ in self.assigned)
            self.folder = follow_cd(self.folder, words, home=home)
            if words[0].text == "unset" and any(word.text == "HOME" for word in words[1:]):
                self.assigned.append(("HOME", None))

    def _check_keyword(self, word: ShellWord) -> None:
        if word.text in _KEYWORDS and not word.quoted:
            self.note_doubt(f"{word.text!r} is a word of the shell itself")
