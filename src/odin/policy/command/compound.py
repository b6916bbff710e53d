"""Lists, pipelines, groups, conditions, loops and functions: what stands around simple commands."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odin.policy.command.pieces import WORDS
from odin.policy.command.redirects import REDIRECTS, Open
from odin.policy.command.simple import SimpleReader

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60
_CLAUSES = ("elif_clause", "else_clause", "do_group")
_TOKENS = (
    *(
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "for",
        "select",
        "in",
        "((",
        "))",
        ";",
        "{",
        "}",
    ),
    "!",
)


class CompoundReader(SimpleReader):
    """Finds the commands inside of others, and follows the folder that `cd` leads to."""

    def __init__(self, source: bytes, folder: str | None, depth: int) -> None:
        super().__init__(source, folder)
        self.depth: int = depth
        self.functions: list[str] = []

    def _statements(self, nodes: Sequence["Node"], after: str, *, nested: bool, arm: bool = False) -> None:
        """Commands one after the other, with the separators between them."""
        joint, separated, end = after, True, -1
        for node in nodes:
            kind = node.type
            if end >= 0:
                self.blank(end, node.start_byte, lines=True)
            if kind in (";", "&", ";;", ";&", ";;&"):
                if (separated and kind == ";") or (kind not in (";", "&") and not arm):
                    self.broken("a separator stands where a command should be")
                joint, separated = kind, True
            elif kind == "comment":
                self._comment(node)
                joint, separated = joint if separated else "\n", True
            else:
                if not separated:
                    if b"\n" not in self.source[end : node.start_byte].replace(b"\\\n", b""):
                        self.broken("two commands stand side by side")
                    joint = "\n"
                self.statement(node, joint, nested=nested)
                separated = False
            end = node.end_byte

    def statement(self, node: "Node", after: str, *, nested: bool) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.broken("it is nested too deeply")
        else:
            method = _STATEMENTS.get(node.type)
            if method is None:
                self.unknown(node)
            else:
                method(self, node, after, nested)
        self.depth -= 1

    def is_statement(self, kind: str) -> bool:
        return kind in _STATEMENTS

    def unknown(self, node: "Node") -> None:
        """Not a command: take what can be read in it as commands all the same, so that nothing forbidden hides."""
        if node.type == "ERROR" or node.is_missing:
            self.broken("it is not complete, or not in the syntax of a shell")
        else:
            self.broken(f"it holds {node.type.replace('_', ' ')} where a command should be")
        loose: list[Node] = []
        for child in node.children:
            if child.type in WORDS:
                loose.append(child)
            elif child.child_count or child.type in _STATEMENTS:
                self.statement(child, "", nested=True)
        if loose or node.type in WORDS:
            self._flush(Open([self.word([item]) for item in loose or [node]], [], []), "", nested=True)

    def _list(self, node: "Node", after: str, nested: bool) -> None:
        before = reached = self.folder
        joint = after
        operator = ""
        end = node.start_byte
        for child in node.children:
            self.blank(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("&&", "||"):
                joint = operator = child.type
                reached = self.folder
                if operator == "||":
                    self.folder = before
            elif child.type == "comment":
                self._comment(child)
            else:
                self.statement(child, joint, nested=nested)
                if operator == "||":
                    self.folder = reached

    def _pipeline(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        joint = after
        end = node.start_byte
        for child in node.children:
            self.blank(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("|", "|&"):
                joint = child.type
            elif child.type == "comment":
                self._comment(child)
            else:
                self.statement(child, joint, nested=nested)
                self.folder = folder

    def _negated(self, node: "Node", after: str, nested: bool) -> None:
        self._parts(node, after, nested=nested, tokens=("!",))

    def _group(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        if children[0].type == "((":
            self.arithmetic(self.text(node))
            self.inside_all(children)
            return
        opening, last = children[0].end_byte, children[-2]
        apart = self.source[opening : opening + 1] in (b" ", b"\t", b"\n")
        ended = last.type in (";", "&", "comment") or b"\n" in self.source[last.end_byte : children[-1].start_byte]
        if not apart or not (ended or self.source[last.end_byte - 1 : last.end_byte] in (b")", b"}")):
            self.broken("a brace looks like a group and is none")
        self._body(children, after)

    def _subshell(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        self._body(node.children, after)
        self.folder = folder

    def _body(self, children: Sequence["Node"], after: str) -> None:
        self.blank(children[0].end_byte, children[1].start_byte, lines=True)
        self.blank(children[-2].end_byte, children[-1].start_byte, lines=True)
        self._statements(children[1:-1], after, nested=True)

    def _branching(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        self._parts(node, after, nested=True, tokens=_TOKENS)
        if self.folder != folder:
            self.folder = None

    def _parts(self, node: "Node", after: str, *, nested: bool, tokens: Sequence[str]) -> None:
        """The commands between the keywords of a compound one."""
        run: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.blank(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in tokens or child.type in _CLAUSES:
                self._statements(run, after, nested=nested)
                run = [child] if child.type in _CLAUSES else []
            else:
                run.append(child)
        self._statements(run, after, nested=nested)

    def _for(self, node: "Node", after: str, nested: bool) -> None:
        name = ""
        values: list[Node] = []
        for child in node.children:
            if child.type == "variable_name" and not name:
                name = self.text(child)
            elif child.type == "do_group" or child.type == "compound_statement":
                self._assign_each(name, values)
                self._branching(child, after, nested=True)
            elif child.type in WORDS and child.is_named:
                values.append(child)
            elif child.type not in _TOKENS:
                self.unknown(child)

    def _assign_each(self, name: str, values: Sequence["Node"]) -> None:
        for word in self.words(values):
            self._assign(name, word)

    def _c_for(self, node: "Node", after: str, nested: bool) -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self._branching(child, after, nested=True)
            elif child.type not in _TOKENS:
                self.arithmetic(self.text(child))
                self.inside(child)

    def _case(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        for child in node.children:
            if child.type == "case_item":
                self._case_item(child, after, nested)
                self.folder = folder if self.folder == folder else None
            elif child.type in WORDS and child.is_named:
                self.word([child])
            elif child.type not in ("case", "in", "esac", ";", "comment"):
                self.unknown(child)

    def _case_item(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        closing = next((index for index, child in enumerate(children) if child.type == ")"), -1)
        if closing < 0:
            self.unknown(node)
            return
        for child in children[:closing]:
            if child.type in WORDS and child.is_named:
                self._pattern(child)
            elif child.type not in ("|", "("):
                self.unknown(child)
        self._statements(children[closing + 1 :], after, nested=True, arm=True)

    def _pattern(self, node: "Node") -> None:
        if node.type == "extglob_pattern" and re.search(r"[$`<>]", self.text(node)):
            self.doubt("a pattern holds an expansion")
        self.inside(node)

    def _function(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        redirects = Open([], [], [])
        for child in node.children:
            if child.type == "word":
                self.functions.append(self.text(child))
            elif child.type in REDIRECTS:
                self._redirect(child, redirects)
            elif child.type not in ("function", "(", ")"):
                self.statement(child, "", nested=True)
        self.folder = folder
        self._flush(redirects, "", nested=True)


_STATEMENTS: "dict[str, Callable[[CompoundReader, Node, str, bool], None]]" = {
    "list": CompoundReader._list,
    "pipeline": CompoundReader._pipeline,
    "negated_command": CompoundReader._negated,
    "compound_statement": CompoundReader._group,
    "subshell": CompoundReader._subshell,
    "if_statement": CompoundReader._branching,
    "elif_clause": CompoundReader._branching,
    "else_clause": CompoundReader._branching,
    "while_statement": CompoundReader._branching,
    "do_group": CompoundReader._branching,
    "for_statement": CompoundReader._for,
    "c_style_for_statement": CompoundReader._c_for,
    "case_statement": CompoundReader._case,
    "case_item": CompoundReader._case_item,
    "function_definition": CompoundReader._function,
    "command": CompoundReader._command,
    "test_command": CompoundReader._command,
    "declaration_command": CompoundReader._command,
    "unset_command": CompoundReader._command,
    "variable_assignment": CompoundReader._assignments,
    "variable_assignments": CompoundReader._assignments,
    "redirected_statement": CompoundReader._redirected,
}
