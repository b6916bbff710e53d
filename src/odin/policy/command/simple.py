"""Simple commands: assignments, words and redirections, and the tests that a shell has built in."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.policy.command.folder import follow_cd
from odin.policy.command.pieces import WORD_NODES
from odin.policy.command.redirects import REDIRECT_NODES, PendingCommand, RedirectReader
from odin.policy.command.shapes import ShellWord, SimpleCommand, split_names
from odin.policy.command.wrappers import can_change_programs

if TYPE_CHECKING:
    from tree_sitter import Node

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
