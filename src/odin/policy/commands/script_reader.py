"""Lists, pipelines, groups, conditions, loops and functions: what stands around simple commands.

A command line as tree-sitter's grammar of bash reads it, flattened into the simple commands it would run.
"""

import re
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from odin.policy.commands.command_reader import REDIRECT_NODES, WORD_NODES, PendingCommand, SimpleCommandReader
from odin.policy.commands.syntax import MAX_COMMAND_CHARS, ShellScript

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


MAX_DEPTH = 60
_CLAUSE_NODES = ("elif_clause", "else_clause", "do_group")
_KEYWORD_TOKENS = (
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


class StatementReader(SimpleCommandReader):
    """Finds the commands inside of others, and follows the folder that `cd` leads to."""

    def __init__(self, source: bytes, folder: str | None, depth: int) -> None:
        super().__init__(source, folder)
        self.depth: int = depth
        self.functions: list[str] = []

    def _read_statements(self, nodes: Sequence["Node"], after: str, *, nested: bool, arm: bool = False) -> None:
        """Commands one after the other, with the separators between them."""
        joint, separated, end = after, True, -1
        for node in nodes:
            kind = node.type
            if end >= 0:
                self.check_gap(end, node.start_byte, lines=True)
            if kind in (";", "&", ";;", ";&", ";;&"):
                if (separated and kind == ";") or (kind not in (";", "&") and not arm):
                    self.note_flaw("a separator stands where a command should be")
                joint, separated = kind, True
            elif kind == "comment":
                self._check_comment(node)
                joint, separated = joint if separated else "\n", True
            else:
                if not separated:
                    if b"\n" not in self.source[end : node.start_byte].replace(b"\\\n", b""):
                        self.note_flaw("two commands stand side by side")
                    joint = "\n"
                self.read_statement(node, joint, nested=nested)
                separated = False
            end = node.end_byte

    def read_statement(self, node: "Node", after: str, *, nested: bool) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.note_flaw("it is nested too deeply")
        else:
            method = _STATEMENT_READERS.get(node.type)
            if method is None:
                self.read_unknown(node)
            else:
                method(self, node, after, nested)
        self.depth -= 1

    def is_statement(self, kind: str) -> bool:
        return kind in _STATEMENT_READERS

    def read_unknown(self, node: "Node") -> None:
        """Not a command: take what can be read in it as commands all the same, so that nothing forbidden hides."""
        if node.type == "ERROR" or node.is_missing:
            self.note_flaw("it is not complete, or not in the syntax of a shell")
        else:
            self.note_flaw(f"it holds {node.type.replace('_', ' ')} where a command should be")
        loose: list[Node] = []
        for child in node.children:
            if child.type in WORD_NODES:
                loose.append(child)
            elif child.child_count or child.type in _STATEMENT_READERS:
                self.read_statement(child, "", nested=True)
        if loose or node.type in WORD_NODES:
            self._flush(PendingCommand([self.read_word([item]) for item in loose or [node]], [], []), "", nested=True)

    def _read_list(self, node: "Node", after: str, nested: bool) -> None:
        before = reached = self.folder
        joint = after
        operator = ""
        end = node.start_byte
        for child in node.children:
            self.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("&&", "||"):
                joint = operator = child.type
                reached = self.folder
                if operator == "||":
                    self.folder = before
            elif child.type == "comment":
                self._check_comment(child)
            else:
                self.read_statement(child, joint, nested=nested)
                if operator == "||":
                    self.folder = reached

    def _read_pipeline(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        joint = after
        end = node.start_byte
        for child in node.children:
            self.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("|", "|&"):
                joint = child.type
            elif child.type == "comment":
                self._check_comment(child)
            else:
                self.read_statement(child, joint, nested=nested)
                self.folder = folder

    def _read_negated(self, node: "Node", after: str, nested: bool) -> None:
        self._read_clauses(node, after, nested=nested, tokens=("!",))

    def _read_group(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        if children[0].type == "((":
            self.check_arithmetic(self.text_of(node))
            self.inspect_nodes(children)
            return
        opening, last = children[0].end_byte, children[-2]
        apart = self.source[opening : opening + 1] in (b" ", b"\t", b"\n")
        ended = last.type in (";", "&", "comment") or b"\n" in self.source[last.end_byte : children[-1].start_byte]
        if not apart or not (ended or self.source[last.end_byte - 1 : last.end_byte] in (b")", b"}")):
            self.note_flaw("a brace looks like a group and is none")
        self._read_body(children, after)

    def _read_subshell(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        self._read_body(node.children, after)
        self.folder = folder

    def _read_body(self, children: Sequence["Node"], after: str) -> None:
        self.check_gap(children[0].end_byte, children[1].start_byte, lines=True)
        self.check_gap(children[-2].end_byte, children[-1].start_byte, lines=True)
        self._read_statements(children[1:-1], after, nested=True)

    def _read_branches(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        self._read_clauses(node, after, nested=True, tokens=_KEYWORD_TOKENS)
        if self.folder != folder:
            self.folder = None

    def _read_clauses(self, node: "Node", after: str, *, nested: bool, tokens: Sequence[str]) -> None:
        """The commands between the keywords of a compound one."""
        run: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in tokens or child.type in _CLAUSE_NODES:
                self._read_statements(run, after, nested=nested)
                run = [child] if child.type in _CLAUSE_NODES else []
            else:
                run.append(child)
        self._read_statements(run, after, nested=nested)

    def _read_for(self, node: "Node", after: str, nested: bool) -> None:
        name = ""
        values: list[Node] = []
        for child in node.children:
            if child.type == "variable_name" and not name:
                name = self.text_of(child)
            elif child.type == "do_group" or child.type == "compound_statement":
                self._assign_each(name, values)
                self._read_branches(child, after, nested=True)
            elif child.type in WORD_NODES and child.is_named:
                values.append(child)
            elif child.type not in _KEYWORD_TOKENS:
                self.read_unknown(child)

    def _assign_each(self, name: str, values: Sequence["Node"]) -> None:
        for word in self.read_words(values):
            self._assign(name, word)

    def _read_c_for(self, node: "Node", after: str, nested: bool) -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self._read_branches(child, after, nested=True)
            elif child.type not in _KEYWORD_TOKENS:
                self.check_arithmetic(self.text_of(child))
                self.inspect_node(child)

    def _read_case(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        for child in node.children:
            if child.type == "case_item":
                self._read_case_item(child, after, nested)
                self.folder = folder if self.folder == folder else None
            elif child.type in WORD_NODES and child.is_named:
                self.read_word([child])
            elif child.type not in ("case", "in", "esac", ";", "comment"):
                self.read_unknown(child)

    def _read_case_item(self, node: "Node", after: str, nested: bool) -> None:
        children = node.children
        closing = next((index for index, child in enumerate(children) if child.type == ")"), -1)
        if closing < 0:
            self.read_unknown(node)
            return
        for child in children[:closing]:
            if child.type in WORD_NODES and child.is_named:
                self._check_pattern(child)
            elif child.type not in ("|", "("):
                self.read_unknown(child)
        self._read_statements(children[closing + 1 :], after, nested=True, arm=True)

    def _check_pattern(self, node: "Node") -> None:
        if node.type == "extglob_pattern" and re.search(r"[$`<>]", self.text_of(node)):
            self.note_doubt("a pattern holds an expansion")
        self.inspect_node(node)

    def _read_function(self, node: "Node", after: str, nested: bool) -> None:
        folder = self.folder
        redirects = PendingCommand([], [], [])
        for child in node.children:
            if child.type == "word":
                self.functions.append(self.text_of(child))
            elif child.type in REDIRECT_NODES:
                self._read_redirect(child, redirects)
            elif child.type not in ("function", "(", ")"):
                self.read_statement(child, "", nested=True)
        self.folder = folder
        self._flush(redirects, "", nested=True)


_STATEMENT_READERS: "dict[str, Callable[[StatementReader, Node, str, bool], None]]" = {
    "list": StatementReader._read_list,
    "pipeline": StatementReader._read_pipeline,
    "negated_command": StatementReader._read_negated,
    "compound_statement": StatementReader._read_group,
    "subshell": StatementReader._read_subshell,
    "if_statement": StatementReader._read_branches,
    "elif_clause": StatementReader._read_branches,
    "else_clause": StatementReader._read_branches,
    "while_statement": StatementReader._read_branches,
    "do_group": StatementReader._read_branches,
    "for_statement": StatementReader._read_for,
    "c_style_for_statement": StatementReader._read_c_for,
    "case_statement": StatementReader._read_case,
    "case_item": StatementReader._read_case_item,
    "function_definition": StatementReader._read_function,
    "command": StatementReader._read_command,
    "test_command": StatementReader._read_command,
    "declaration_command": StatementReader._read_command,
    "unset_command": StatementReader._read_command,
    "variable_assignment": StatementReader._read_assignments,
    "variable_assignments": StatementReader._read_assignments,
    "redirected_statement": StatementReader._read_redirected,
}


_MAX_UNCHECKED_CHARS = 3_000
"""How much is read at once without a look at it: the work grows with the square of the length where it is broken."""
_MAX_SKIMMED_CHARS = 5_000
_MAX_HEREDOCS = 10
_HEREDOC = re.compile(r"(<<-?[ \t]*(['\"]?)(\w+)\2[^\n]*\n)(?s:.*?\n)??(\t*\3(?=\n|$))")
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?<!<< )'[^']*'|(?<!<<)(?<!<<-)(?<!<< )\"(?:[^\"\\$`]|\\.)*\"", re.DOTALL)

_AFTER_BRACE = re.compile(rb"(\{[0-9]*(?:\.\.[0-9]*)?)([\xc4-\xf4][\x80-\xbf]*)")
"""Where the grammar looks for a digit in a table of 256 characters, and finds a character that the table does not have:
what it reads there is not its own, and may end the whole program."""


class _ThreadParsers(threading.local):
    """A parser of its own for every thread: one parser must not read two texts at once."""

    @cached_property
    def bash(self) -> "Parser":
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        return Parser(Language(tree_sitter_bash.language()))


_PARSERS = _ThreadParsers()


def read_script(text: str, folder: str | None = "") -> tuple[ShellScript, str]:
    """The commands of a text as far as they can be found, and why they may not be all of it, or ""."""
    if len(text) > MAX_COMMAND_CHARS:
        return _read_overlong(text), "it is too long to be read"
    if len(text) > _MAX_UNCHECKED_CHARS and not _is_sound(text):
        return _read_overlong(text), "it is too long to be read at once, and it has errors or too many parts"
    reader = ScriptReader(text.encode("utf-8", "replace"), folder, 0)
    reader.read_program()
    script = ShellScript(
        tuple(reader.commands),
        plain=False,
        bodies=tuple(reader.bodies),
        doubts=tuple(reader.doubts),
        assigned=tuple(reader.assigned),
        functions=tuple(reader.functions),
        assigned_words=tuple(reader.assigned_words),
    )
    return script, reader.flaw


def _read_overlong(text: str) -> ShellScript:
    """The commands of an overlong text, read in short pieces."""
    pieces = re.findall(
        r"(?s).{1,400}(?:[;\n]|$)|.{1,400}", text[:_MAX_SKIMMED_CHARS] + text[_MAX_SKIMMED_CHARS:][-_MAX_SKIMMED_CHARS:]
    )
    commands = [simple for piece in pieces for simple in read_script(piece)[0].commands]
    return ShellScript(tuple(commands), plain=False)


def _is_sound(text: str) -> bool:
    """Whether a long text is one of few commands with much text in quotes, and those commands can be read."""
    if text.count("<<") > _MAX_HEREDOCS:
        return False
    bones = _QUOTED.sub("''", _HEREDOC.sub(r"\1\4", text))
    if len(bones) > _MAX_UNCHECKED_CHARS:
        return False
    return not _PARSERS.bash.parse(_sanitize_source(bones.encode("utf-8", "replace"))).root_node.has_error


def _sanitize_source(source: bytes) -> bytes:
    """The text without what the grammar must not be given."""
    return _AFTER_BRACE.sub(lambda found: found[1] + b"_" * len(found[2]), source)


def _is_quoted(root: "Node", at: int) -> bool:
    """Whether the byte there is text and nothing else."""
    node = root.descendant_for_byte_range(at, at + 1)
    return node is not None and node.type in ("raw_string", "string_content")


class ScriptReader(StatementReader):
    """Reads a whole text, and the texts inside of it."""

    def read_program(self, *, nested: bool = False) -> None:
        source = _sanitize_source(self.source)
        root = _PARSERS.bash.parse(source).root_node
        if not all(_is_quoted(root, found.start(2)) for found in _AFTER_BRACE.finditer(self.source)):
            self.note_flaw("it has an unusual character right after a brace")
        children = root.children
        if children:
            self.check_gap(0, children[0].start_byte, lines=True)
            self.check_gap(children[-1].end_byte, len(self.source), lines=True)
        elif self.source.replace(b"\\\n", b"").strip(b" \t\n"):
            self.note_flaw("it cannot be read")
        if root.has_error:
            self._check_errors(root)
        self._read_statements(children, "", nested=nested)

    def _check_errors(self, root: "Node") -> None:
        """Any error makes the text unclear, but one: `<>`, which the grammar does not know (see `_redirect`)."""
        left = [root]
        while left:
            node = left.pop()
            if node.is_missing or (node.type == "ERROR" and self.text_of(node) != ">"):
                self.note_flaw("it is not complete, or not in the syntax of a shell")
                return
            left += [child for child in node.children if child.has_error]

    def read_substitution(self, node: "Node") -> None:
        folder = self.folder
        children = node.children
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.note_flaw("it is nested too deeply")
        elif children[0].type == "`":
            body = self.text_of(node)[1:-1]
            self.read_nested_text(re.sub(r"\\([\\`$])", r"\1", body))
        elif children[0].type not in ("$(", "<(", ">(") or children[-1].type != ")":
            self.read_unknown(node)
        elif len(children) > 2:
            self._read_substituted(children)
        self.depth -= 1
        self.folder = folder

    def _read_substituted(self, children: Sequence["Node"]) -> None:
        inner = children[1:-1]
        if inner[0].type in REDIRECT_NODES:
            pending = PendingCommand([], [], [])
            for child in inner:
                self._read_redirect(child, pending)
            self._flush(pending, "", nested=True)
            return
        self._read_body(children, "")

    def read_nested_text(self, text: str) -> None:
        """Read a text of its own that was quoted inside of this one."""
        if self.depth > MAX_DEPTH or len(text) > _MAX_UNCHECKED_CHARS:
            self.note_flaw("it is nested too deeply")
            return
        inner = ScriptReader(text.encode("utf-8", "replace"), self.folder, self.depth + 1)
        inner.read_program(nested=True)
        self.commands += inner.commands
        self.bodies += inner.bodies
        self.assigned += inner.assigned
        self.functions += inner.functions
        self.assigned_words += inner.assigned_words
        for reason in inner.doubts:
            self.note_doubt(reason)
        if inner.flaw:
            self.note_flaw(inner.flaw)
