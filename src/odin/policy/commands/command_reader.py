"""Simple commands read from tree-sitter nodes: assignments, words, tests, redirections and here-documents."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from odin.policy.commands.programs import can_change_programs, follow_cd
from odin.policy.commands.syntax import Redirect, ShellWord, SimpleCommand, split_names
from odin.policy.commands.word_reader import WORD_NODES, NestedReader, ScriptState, WordReader

if TYPE_CHECKING:
    from tree_sitter import Node

REDIRECT_NODES = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_STREAM = re.compile(r"\d+-?|-|[A-Za-z_./~][\w./~-]*")


class PendingCommand(Struct):
    """The simple command being read. `following` are the commands after it on the line of a here-document."""

    words: list[ShellWord]
    redirects: list[Redirect]
    following: "list[tuple[str, Node]]"


class StatementReader(NestedReader, Protocol):
    """Reads the statements around simple commands."""

    def read_statement(self, node: "Node", operator: str, *, nested: bool) -> None:
        """Read any command, simple or compound."""
        ...

    def read_unknown(self, node: "Node") -> None:
        """Read the commands in an unexpected node, so that no forbidden command hides there."""
        ...

    def is_statement(self, kind: str) -> bool: ...


_KEYWORDS = split_names("then elif else fi do done esac for case select function { } ]] in if while until ! coproc")
_NUMERIC_TESTS = split_names("-eq -ne -lt -le -gt -ge -v")
SIMPLE_NODES = frozenset(("command", "test_command", "declaration_command", "unset_command"))


class CommandReader:
    """Collects simple commands in source order."""

    def __init__(self, state: ScriptState, statements: StatementReader) -> None:
        self.state = state
        self.words = WordReader(state, statements)
        self._statements = statements

    def read_redirect(self, node: "Node", pending: PendingCommand) -> None:
        if node.type == "heredoc_redirect":
            self._read_heredoc(node, pending)
            return
        fd = op = ""
        word_nodes: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.state.check_gap(end, child.start_byte)
            if child.type == "file_descriptor":
                fd = self.state.get_text(child)
            elif child.type in WORD_NODES:
                word_nodes.append(child)
            elif child.type == "ERROR" and op == "<" and self.state.get_text(child) == ">" and end == child.start_byte:
                op = "<>"
            elif not op and not child.is_named:
                op = child.type
            else:
                self._statements.read_unknown(child)
            end = child.end_byte
        words = self.words.read_words(word_nodes)
        if op in ("<&-", ">&-"):
            words.insert(0, ShellWord("-"))
            op = op[:2]
        if not words or not op:
            self.state.note_flaw("a redirection has no target")
            return
        if op in (">&", "<&") and not _STREAM.fullmatch(words[0].text):
            self.state.note_doubt("the target of a redirection may run code")
        pending.redirects.append(Redirect(fd, op, words[0]))
        pending.words += words[1:]

    def _read_heredoc(self, node: "Node", pending: PendingCommand) -> None:
        op = start = fd = rest = ""
        substitutions = 0
        finish = node.end_byte
        line_end = node.start_byte
        for child in node.children:
            kind = child.type
            if kind in ("heredoc_body", "heredoc_end"):
                finish = child.start_byte if kind == "heredoc_end" else finish
                substitutions += sum(item.type == "command_substitution" for item in child.children)
                self.words.inspect_nodes(child.children)
                continue
            line_end = child.end_byte
            if kind in ("<<", "<<-"):
                op = kind
            elif kind == "file_descriptor":
                fd = self.state.get_text(child)
            elif kind == "heredoc_start":
                start = self.state.get_text(child)
            elif kind in ("&&", "||"):
                rest = kind
            elif kind in REDIRECT_NODES:
                self.read_redirect(child, pending)
            elif kind in WORD_NODES:
                pending.words.append(self.words.read_word([child]))
            elif self._statements.is_statement(kind):
                pending.following.append((rest or "|", child))
            else:
                self._statements.read_unknown(child)
        delimiter = re.sub(r"['\"\\]", "", start)
        pending.redirects.append(Redirect(fd, op, ShellWord(delimiter, quoted=delimiter != start)))
        body = self._read_heredoc_body(op, delimiter, line_end, finish)
        self.state.bodies.append(body)
        if start == delimiter:
            self._check_heredoc_expansion(body, substitutions)

    def _read_heredoc_body(self, op: str, delimiter: str, line_end: int, finish: int) -> str:
        gap = self.state.source.find(b"\n", line_end)
        body = self.state.source[gap + 1 : finish].decode("utf-8", "replace") if 0 <= gap < finish else ""
        self.state.check_gap(line_end, max(gap, line_end))
        lines = [line.lstrip("\t") if op == "<<-" else line for line in body.split("\n")]
        last = self.state.source[finish:].decode("utf-8", "replace").split("\n", 1)[0]
        if delimiter in lines[:-1] or last != delimiter or lines[-1] or not re.fullmatch(r"\w+", delimiter):
            self.state.note_flaw("the end of a here-document is not certain")
        return body

    def _check_heredoc_expansion(self, body: str, substitutions: int) -> None:
        """Note a doubt if an unquoted here-document has expansions other than the substitutions already read."""
        if "`" in body or re.search(r"\$[\[{]", body) or len(re.findall(r"(?<!\\)\$\(", body)) != substitutions:
            self.state.note_doubt("a here-document contains expansions")
        for inner in re.findall(r"(?<!\\)`([^`]*)`", body):
            self._statements.read_nested_text(inner)

    def read_command(self, node: "Node", operator: str, *, nested: bool) -> None:
        self._finish(self._read_pending(node), operator, nested=nested)

    def read_redirected(self, node: "Node", operator: str, *, nested: bool) -> None:
        children = node.children
        body = None if children[0].type in REDIRECT_NODES else children[0]
        simple = body is not None and body.type in SIMPLE_NODES
        pending = self._read_pending(body) if body is not None and simple else PendingCommand([], [], [])
        if body is not None and not simple:
            self._statements.read_statement(body, operator, nested=nested)
        end = body.end_byte if body is not None else node.start_byte
        for child in children[0 if body is None else 1 :]:
            if child.type in REDIRECT_NODES:
                self.state.check_gap(end, child.start_byte)
                if simple and end == child.start_byte:
                    self._drop_named_descriptor(pending)
                self.read_redirect(child, pending)
            elif child.type == "comment":
                self.state.check_comment(child)
            else:
                self._statements.read_unknown(child)
            end = child.end_byte
        if body is not None and not pending.following and self._is_for_last(body):
            last = self.state.commands.pop()
            self.state.commands.append(replace(last, redirects=(*last.redirects, *pending.redirects)))
            return
        self._finish(pending, operator, nested=nested)

    @staticmethod
    def _is_for_last(body: "Node") -> bool:
        """True for `a || b 2>x`: the grammar gives the redirection to the list, but it belongs to the last command."""
        last = body
        while last.type in ("list", "pipeline", "redirected_statement") and last.children:
            last = last.children[0 if last.type == "redirected_statement" else -1]
        return body.type in ("list", "pipeline") and last.type == "command"

    def _finish(self, pending: PendingCommand, operator: str, *, nested: bool) -> None:
        self.flush(pending, operator, nested=nested)
        for next_operator, child in pending.following:
            folder = self.state.folder
            self._statements.read_statement(child, next_operator, nested=nested)
            self.state.folder = folder if next_operator == "|" else self.state.folder

    @staticmethod
    def _drop_named_descriptor(pending: PendingCommand) -> None:
        """Drop the `{name}` of `{name}>file`: it is a variable for the descriptor, not a word of the command."""
        if pending.words and re.fullmatch(r"\{\w+\}", pending.words[-1].text):
            pending.words.pop()

    def _read_pending(self, node: "Node") -> PendingCommand:
        pending = PendingCommand([], [], [])
        if node.type == "test_command":
            pending.words = self._read_test(node)
            return pending
        word_nodes: list[Node] = []
        end = node.start_byte
        before = ""
        for child in node.children:
            self.state.check_gap(end, child.start_byte)
            kind = child.type
            separated = before not in REDIRECT_NODES and before != "variable_assignment"
            if not separated and kind not in REDIRECT_NODES and self.state.is_touching(end, child.start_byte):
                self.state.note_flaw("a redirection or assignment is not separated from the next word")
            before = kind
            if kind in WORD_NODES or (not child.is_named and node.type != "command"):
                word_nodes.append(child)
            else:
                pending.words += self._read_plain_words(node, word_nodes)
                word_nodes = []
                self._read_special(child, pending)
            end = child.end_byte
        pending.words += self._read_plain_words(node, word_nodes)
        return pending

    def _read_plain_words(self, node: "Node", word_nodes: Sequence["Node"]) -> list[ShellWord]:
        if word_nodes and not word_nodes[0].is_named and node.type != "command" and word_nodes[0].child_count == 0:
            return [ShellWord(self.state.get_text(word_nodes[0])), *self.words.read_words(word_nodes[1:])]
        return self.words.read_words(word_nodes)

    def _read_special(self, child: "Node", pending: PendingCommand) -> None:
        if child.type == "variable_assignment":
            pending.words.append(self._read_assignment(child))
        elif child.type in REDIRECT_NODES:
            if pending.words and self.state.source[child.start_byte - 1 : child.start_byte] == b"}":
                self._drop_named_descriptor(pending)
            self.read_redirect(child, pending)
        elif child.type == "comment":
            self.state.check_comment(child)
        elif child.type == "array":
            self.words.inspect_node(child)
            pending.words.append(ShellWord(self.state.get_text(child), expands=True))
        else:
            self._statements.read_unknown(child)

    def _read_assignment(self, node: "Node") -> ShellWord:
        children = node.children
        name = self.state.get_text(children[0])
        if children[0].type == "subscript":
            self.words.inspect_node(children[0])
            self.state.note_doubt("an array index may run code from a variable")
        value = self._read_value(children[2:])
        if can_change_programs(name, value.text if value.literal else None):
            self.state.note_doubt(f"it sets {name}, which can change what other programs do")
        self.state.assign(name, value, adds=self.state.get_text(children[1]) != "=")
        whole = name + self.state.get_text(children[1]) + value.text
        return ShellWord(whole, value.expands or children[0].type == "subscript", value.glob, value.quoted)

    def _read_value(self, nodes: Sequence["Node"]) -> ShellWord:
        if not nodes:
            return ShellWord("")
        if nodes[0].type == "array":
            self.words.inspect_nodes(nodes)
            return ShellWord(self.state.get_text(nodes[0]), expands=True)
        value = self.words.read_word(nodes)
        bare = self.state.get_text(nodes[0])
        return ShellWord(value.text, value.expands or bare.startswith("~") or ":~" in bare, value.glob, value.quoted)

    def read_assignments(self, node: "Node", operator: str, *, nested: bool) -> None:
        nodes = node.children if node.type == "variable_assignments" else [node]
        words = [self._read_assignment(child) for child in nodes if child.type == "variable_assignment"]
        if len(words) != len(nodes):
            self._statements.read_unknown(node)
        self.flush(PendingCommand(words, [], []), operator, nested=nested)

    def _read_test(self, node: "Node") -> list[ShellWord]:
        """Read `[ ]` or `[[ ]]`. The grammar accepts operators in `[ ]` that would end the command or open a file."""
        leaves: list[Node] = []
        self._collect_leaves(node, leaves)
        double = leaves[0].type == "[["
        if leaves[0].type == "((":
            self.words.check_arithmetic(self.state.get_text(node))
            return [ShellWord("((")]
        for leaf in leaves:
            if leaf.type not in WORD_NODES and not (
                double and leaf.type in ("[[", "]]", "&&", "||", "(", ")", "<", ">")
            ):
                self.state.note_flaw(f"{self.state.get_text(leaf)!r} is inside a test")
        words = [self._read_leaf(group) for group in self._group_touching(leaves, lines=double)]
        texts = [word.text for word in words]
        if double and (not _NUMERIC_TESTS.isdisjoint(texts) or any("[" in text for text in texts[1:-1])):
            self.state.note_doubt("a numeric test may evaluate code in its words")
        return words

    def _collect_leaves(self, node: "Node", leaves: "list[Node]") -> None:
        for child in node.children:
            if child.type in ("unary_expression", "binary_expression", "parenthesized_expression"):
                self._collect_leaves(child, leaves)
            elif child.type == "ERROR":
                self._statements.read_unknown(child)
            else:
                leaves.append(child)

    def _group_touching(self, nodes: Sequence["Node"], *, lines: bool) -> "list[list[Node]]":
        groups: list[list[Node]] = []
        for node in nodes:
            if groups and self.state.is_touching(groups[-1][-1].end_byte, node.start_byte):
                groups[-1].append(node)
                continue
            if groups:
                self.state.check_gap(groups[-1][-1].end_byte, node.start_byte, lines=lines)
            groups.append([node])
        return groups

    def _read_leaf(self, group: Sequence["Node"]) -> ShellWord:
        expression = len(group) == 1 and group[0].type == "regex"
        if not expression and all(node.type in WORD_NODES for node in group):
            return self.words.read_word(group)
        if expression and re.search(r"`|\$[({\[]", self.state.get_text(group[0])):
            self.state.note_doubt("a pattern contains an expansion")
        self.words.inspect_nodes(group)
        return ShellWord("".join(self.state.get_text(node) for node in group))

    def flush(self, pending: PendingCommand, operator: str, *, nested: bool) -> None:
        words = pending.words
        if not words and not pending.redirects:
            return
        self.state.commands.append(
            SimpleCommand(tuple(words), tuple(pending.redirects), operator, nested, self.state.folder)
        )
        if words:
            self._check_keyword(words[0])
            home = not any(name == "HOME" for name, _ in self.state.assigned)
            self.state.folder = follow_cd(self.state.folder, words, home=home)
            if words[0].text == "unset" and any(word.text == "HOME" for word in words[1:]):
                self.state.assigned.append(("HOME", None))

    def _check_keyword(self, word: ShellWord) -> None:
        if word.text in _KEYWORDS and not word.quoted:
            self.state.note_doubt(f"{word.text!r} is a reserved word of the shell")
