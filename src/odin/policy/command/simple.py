"""Simple commands: assignments, words and redirections, and the tests that a shell has built in."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.policy.command.folder import moved
from odin.policy.command.pieces import WORDS
from odin.policy.command.redirects import REDIRECTS, Open, RedirectReader
from odin.policy.command.shapes import Simple, Word, named
from odin.policy.command.wrappers import steers

if TYPE_CHECKING:
    from tree_sitter import Node

_KEYWORDS = named("then elif else fi do done esac for case select function { } ]] in if while until ! coproc")
_NUMERIC_TESTS = named("-eq -ne -lt -le -gt -ge -v")
SIMPLE = frozenset(("command", "test_command", "declaration_command", "unset_command"))


class SimpleReader(RedirectReader):
    """Collects simple commands in the order in which they stand."""

    def __init__(self, source: bytes, folder: str | None) -> None:
        super().__init__(source)
        self.folder = folder
        self.commands: list[Simple] = []
        self.bodies: list[str] = []
        self.assigned: list[tuple[str, str | None]] = []
        self.given: list[tuple[str, Word]] = []

    @abstractmethod
    def statement(self, node: "Node", after: str, *, nested: bool) -> None:
        """Read any command, simple or not."""
        ...

    def take_body(self, body: str) -> None:
        self.bodies += [body]

    def _comment(self, node: "Node") -> None:
        at = node.start_byte
        while self.source[at - 2 : at] == b"\\\n" and at > 1:
            at -= 2
        if at and self.source[at - 1] not in b" \t\n;&|()":
            self.broken("something looks like a comment and is none")

    def _command(self, node: "Node", after: str, nested: bool) -> None:
        self._finish(self._opened(node), after, nested=nested)

    def _redirected(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        body = None if children[0].type in REDIRECTS else children[0]
        simple = body is not None and body.type in SIMPLE
        opened = self._opened(body) if body is not None and simple else Open([], [], [])
        if body is not None and not simple:
            self.statement(body, after, nested=nested)
        end = body.end_byte if body is not None else node.start_byte
        for child in children[0 if body is None else 1 :]:
            if child.type in REDIRECTS:
                self.blank(end, child.start_byte)
                if simple and end == child.start_byte:
                    self._named_descriptor(opened)
                self._redirect(child, opened)
            elif child.type == "comment":
                self._comment(child)
            else:
                self.unknown(child)
            end = child.end_byte
        if body is not None and not opened.rest and self._for_last(body):
            last = self.commands.pop()
            self.commands.append(replace(last, redirects=(*last.redirects, *opened.redirects)))
            return
        self._finish(opened, after, nested=nested)

    @staticmethod
    def _for_last(body: "Node") -> bool:
        """`a || b 2>x`: the grammar gives a redirection to the whole, but it is only meant for the last command."""
        last = body
        while last.type in ("list", "pipeline", "redirected_statement") and last.children:
            last = last.children[0 if last.type == "redirected_statement" else -1]
        return body.type in ("list", "pipeline") and last.type == "command"

    def _finish(self, opened: Open, after: str, *, nested: bool) -> None:
        self._flush(opened, after, nested=nested)
        for joint, child in opened.rest:
            folder = self.folder
            self.statement(child, joint, nested=nested)
            self.folder = folder if joint == "|" else self.folder

    @staticmethod
    def _named_descriptor(opened: Open) -> None:
        """`{name}>file` opens a file for a variable; its name is no word of the command."""
        if opened.words and re.fullmatch(r"\{\w+\}", opened.words[-1].text):
            opened.words.pop()

    def _opened(self, node: "Node") -> Open:
        opened = Open([], [], [])
        if node.type == "test_command":
            opened.words = self._test(node)
            return opened
        loose: list[Node] = []
        end = node.start_byte
        before = ""
        for child in node.children:
            self.blank(end, child.start_byte)
            kind = child.type
            apart = before not in REDIRECTS and before != "variable_assignment"
            if not apart and kind not in REDIRECTS and self.touching(end, child.start_byte):
                self.broken("a redirection or an assignment and a word are not apart")
            before = kind
            if kind in WORDS or (not child.is_named and node.type != "command"):
                loose.append(child)
            else:
                opened.words += self._plain_words(node, loose)
                loose = []
                self._special(child, opened)
            end = child.end_byte
        opened.words += self._plain_words(node, loose)
        return opened

    def _plain_words(self, node: "Node", loose: Sequence["Node"]) -> list[Word]:
        if loose and not loose[0].is_named and node.type != "command" and loose[0].child_count == 0:
            return [Word(self.text(loose[0])), *self.words(loose[1:])]
        return self.words(loose)

    def _special(self, child: "Node", opened: Open) -> None:
        if child.type == "variable_assignment":
            opened.words.append(self._assignment(child))
        elif child.type in REDIRECTS:
            if opened.words and self.source[child.start_byte - 1 : child.start_byte] == b"}":
                self._named_descriptor(opened)
            self._redirect(child, opened)
        elif child.type == "comment":
            self._comment(child)
        elif child.type == "array":
            self.inside(child)
            opened.words.append(Word(self.text(child), expands=True))
        else:
            self.unknown(child)

    def _assignment(self, node: "Node") -> Word:
        children = node.children
        name = self.text(children[0])
        if children[0].type == "subscript":
            self.inside(children[0])
            self.doubt("the index of an array may run what a variable holds")
        value = self._value(children[2:])
        if steers(name, value.text if value.literal else None):
            self.doubt(f"it changes {name}, on which it depends what other programs do")
        self._assign(name, value)
        whole = name + self.text(children[1]) + value.text
        return Word(whole, value.expands or children[0].type == "subscript", value.glob, value.quoted)

    def _assign(self, name: str, value: Word) -> None:
        self.assigned.append((name, value.text if value.literal else None))
        self.given.append((name, value))

    def _value(self, nodes: Sequence["Node"]) -> Word:
        if not nodes:
            return Word("")
        if nodes[0].type == "array":
            self.inside_all(nodes)
            return Word(self.text(nodes[0]), expands=True)
        value = self.word(nodes)
        bare = self.text(nodes[0])
        return Word(value.text, value.expands or bare.startswith("~") or ":~" in bare, value.glob, value.quoted)

    def _assignments(self, node: "Node", after: str, nested: bool) -> None:
        nodes = node.children if node.type == "variable_assignments" else [node]
        words = [self._assignment(child) for child in nodes if child.type == "variable_assignment"]
        if len(words) != len(nodes):
            self.unknown(node)
        self._flush(Open(words, [], []), after, nested=nested)

    def _test(self, node: "Node") -> list[Word]:
        """`[ ]` and `[[ ]]`. In the first, operators that the grammar accepts would end the command or open a file."""
        leaves: list[Node] = []
        self._leaves(node, leaves)
        double = leaves[0].type == "[["
        if leaves[0].type == "((":
            self.arithmetic(self.text(node))
            return [Word("((")]
        for leaf in leaves:
            if leaf.type not in WORDS and not (double and leaf.type in ("[[", "]]", "&&", "||", "(", ")", "<", ">")):
                self.broken(f"{self.text(leaf)!r} stands inside of a test")
        words = [self._leaf(group) for group in self._grouped(leaves, lines=double)]
        texts = [word.text for word in words]
        if double and (not _NUMERIC_TESTS.isdisjoint(texts) or any("[" in text for text in texts[1:-1])):
            self.doubt("a numeric test may run what its words hold")
        return words

    def _leaves(self, node: "Node", found: "list[Node]") -> None:
        for child in node.children:
            if child.type in ("unary_expression", "binary_expression", "parenthesized_expression"):
                self._leaves(child, found)
            elif child.type == "ERROR":
                self.unknown(child)
            else:
                found.append(child)

    def _grouped(self, nodes: Sequence["Node"], *, lines: bool) -> "list[list[Node]]":
        groups: list[list[Node]] = []
        for node in nodes:
            if groups and self.touching(groups[-1][-1].end_byte, node.start_byte):
                groups[-1].append(node)
                continue
            if groups:
                self.blank(groups[-1][-1].end_byte, node.start_byte, lines=lines)
            groups.append([node])
        return groups

    def _leaf(self, group: Sequence["Node"]) -> Word:
        expression = len(group) == 1 and group[0].type == "regex"
        if not expression and all(node.type in WORDS for node in group):
            return self.word(group)
        if expression and re.search(r"`|\$[({\[]", self.text(group[0])):
            self.doubt("a pattern holds an expansion")
        self.inside_all(group)
        return Word("".join(self.text(node) for node in group))

    def _flush(self, opened: Open, after: str, *, nested: bool) -> None:
        words = opened.words
        if not words and not opened.redirects:
            return
        self.commands.append(Simple(tuple(words), tuple(opened.redirects), after, nested, self.folder))
        if words:
            self._keyword(words[0])
            home = not any(name == "HOME" for name, _ in self.assigned)
            self.folder = moved(self.folder, words, home=home)
            if words[0].text == "unset" and any(word.text == "HOME" for word in words[1:]):
                self.assigned.append(("HOME", None))

    def _keyword(self, word: Word) -> None:
        if word.text in _KEYWORDS and not word.quoted:
            self.doubt(f"{word.text!r} is a word of the shell itself")
