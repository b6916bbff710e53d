"""Scripts read from tree-sitter's bash grammar and flattened into the simple commands they would run.

This module reads what surrounds simple commands: lists, pipelines, groups, conditions, loops and functions.
"""

import re
import threading
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from odin.policy.commands.command_reader import REDIRECT_NODES, SIMPLE_NODES, CommandReader, PendingCommand
from odin.policy.commands.syntax import MAX_COMMAND_CHARS, ShellScript, split_names
from odin.policy.commands.word_reader import WORD_NODES, ScriptState

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


_MAX_DEPTH = 60
_STATEMENT_NODES = SIMPLE_NODES | split_names(
    "list pipeline negated_command compound_statement subshell if_statement elif_clause else_clause while_statement "
    "do_group for_statement c_style_for_statement case_statement case_item function_definition variable_assignment "
    "variable_assignments redirected_statement"
)
_CLAUSE_NODES = ("elif_clause", "else_clause", "do_group")
_KEYWORD_TOKENS = split_names("if then elif else fi while until do done for select in (( )) ; { } !")

_MAX_UNCHECKED_CHARS = 3_000
"""Longer texts are checked for errors first: parsing broken syntax takes time quadratic in its length."""
_MAX_SKIMMED_CHARS = 5_000
_MAX_HEREDOCS = 10
_HEREDOC = re.compile(r"(<<-?[ \t]*(['\"]?)(\w+)\2[^\n]*\n)(?s:.*?\n)??(\t*\3(?=\n|$))")
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?<!<< )'[^']*'|(?<!<<)(?<!<<-)(?<!<< )\"(?:[^\"\\$`]|\\.)*\"", re.DOTALL)

_AFTER_BRACE = re.compile(rb"(\{[0-9]*(?:\.\.[0-9]*)?)([\xc4-\xf4][\x80-\xbf]*)")
"""Text on which the grammar indexes a table of 256 characters out of bounds, which can crash the process."""


_DROPPED_DASH = re.compile(rb"(?<=[ \t])-(?=[ \t]+<<)")


class _ThreadParsers(threading.local):
    """One parser per thread: a parser must not read two texts at once."""

    @cached_property
    def bash(self) -> "Parser":
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        return Parser(Language(tree_sitter_bash.language()))


_PARSERS = _ThreadParsers()


class ScriptReader:
    """Reads a script and the scripts nested in it, and follows the current directory through each `cd`."""

    def __init__(self, source: bytes, folder: str | None, depth: int) -> None:
        self.state = ScriptState(source, folder, depth)
        self._commands = CommandReader(self.state, self)

    def read_program(self, *, nested: bool = False) -> None:
        source = _sanitize_source(self.state.source)
        root = _PARSERS.bash.parse(source).root_node
        if not all(_is_quoted(root, match.start(2)) for match in _AFTER_BRACE.finditer(self.state.source)):
            self.state.note_flaw("it has an unusual character right after a brace")
        children = root.children
        if children:
            self.state.check_gap(0, children[0].start_byte, lines=True)
            self.state.check_gap(children[-1].end_byte, len(self.state.source), lines=True)
        elif self.state.source.replace(b"\\\n", b"").strip(b" \t\n"):
            self.state.note_flaw("it cannot be parsed")
        if root.has_error:
            self._check_errors(root)
        self._read_statements(children, "", nested=nested)

    def _check_errors(self, root: "Node") -> None:
        """Note a flaw for any syntax error except `<>`, which the grammar lacks (see `CommandReader.read_redirect`)."""
        left = [root]
        while left:
            node = left.pop()
            if node.is_missing or (node.type == "ERROR" and self.state.get_text(node) != ">"):
                self.state.note_flaw("it is not complete, or not valid shell syntax")
                return
            left += [child for child in node.children if child.has_error]

    def _read_statements(self, nodes: Sequence["Node"], operator: str, *, nested: bool, in_case: bool = False) -> None:
        """Read a sequence of commands and the separators between them."""
        separated, end = True, -1
        for node in nodes:
            kind = node.type
            if end >= 0:
                self.state.check_gap(end, node.start_byte, lines=True)
            if kind in (";", "&", ";;", ";&", ";;&"):
                if (separated and kind == ";") or (kind not in (";", "&") and not in_case):
                    self.state.note_flaw("a separator is where a command is expected")
                operator, separated = kind, True
            elif kind == "comment":
                self.state.check_comment(node)
                operator, separated = operator if separated else "\n", True
            else:
                if not separated:
                    if b"\n" not in self.state.source[end : node.start_byte].replace(b"\\\n", b""):
                        self.state.note_flaw("two commands have no separator between them")
                    operator = "\n"
                self.read_statement(node, operator, nested=nested)
                separated = False
            end = node.end_byte

    def read_statement(self, node: "Node", operator: str, *, nested: bool) -> None:
        self.state.depth += 1
        if self.state.depth > _MAX_DEPTH:
            self.state.note_flaw("it is nested too deeply")
        else:
            self._dispatch(node, operator, nested=nested)
        self.state.depth -= 1

    def _dispatch(self, node: "Node", operator: str, *, nested: bool) -> None:
        match node.type:
            case "command" | "test_command" | "declaration_command" | "unset_command":
                self._commands.read_command(node, operator, nested=nested)
            case "redirected_statement":
                self._commands.read_redirected(node, operator, nested=nested)
            case "variable_assignment" | "variable_assignments":
                self._commands.read_assignments(node, operator, nested=nested)
            case "list":
                self._read_list(node, operator, nested=nested)
            case "pipeline":
                self._read_pipeline(node, operator, nested=nested)
            case "negated_command":
                self._read_clauses(node, operator, nested=nested, tokens=("!",))
            case _:
                self._read_compound(node, operator)

    def _read_compound(self, node: "Node", operator: str) -> None:
        match node.type:
            case "compound_statement":
                self._read_group(node, operator)
            case "subshell":
                self._read_subshell(node, operator)
            case "if_statement" | "elif_clause" | "else_clause" | "while_statement" | "do_group":
                self._read_branches(node, operator)
            case "for_statement":
                self._read_for(node, operator)
            case "c_style_for_statement":
                self._read_c_for(node, operator)
            case "case_statement":
                self._read_case(node, operator)
            case "case_item":
                self._read_case_item(node, operator)
            case "function_definition":
                self._read_function(node)
            case _:
                self.read_unknown(node)

    def is_statement(self, kind: str) -> bool:
        return kind in _STATEMENT_NODES

    def read_unknown(self, node: "Node") -> None:
        """Read the commands in an unexpected node, so that no forbidden command hides there."""
        if node.type == "ERROR" or node.is_missing:
            self.state.note_flaw("it is not complete, or not valid shell syntax")
        else:
            self.state.note_flaw(f"it contains {node.type.replace('_', ' ')} where a command is expected")
        word_nodes: list[Node] = []
        for child in node.children:
            if child.type in WORD_NODES:
                word_nodes.append(child)
            elif child.child_count or child.type in _STATEMENT_NODES:
                self.read_statement(child, "", nested=True)
        if word_nodes or node.type in WORD_NODES:
            self._commands.flush(
                PendingCommand([self._commands.words.read_word([item]) for item in word_nodes or [node]], [], []),
                "",
                nested=True,
            )

    def _read_list(self, node: "Node", operator: str, *, nested: bool) -> None:
        """Read `a && b || c`. A command after `||` runs in the folder from before the list: the `cd` has failed."""
        before = reached = self.state.folder
        list_operator = ""
        end = node.start_byte
        for child in node.children:
            self.state.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("&&", "||"):
                list_operator = child.type
                reached = self.state.folder
                if list_operator == "||":
                    self.state.folder = before
            elif child.type == "comment":
                self.state.check_comment(child)
            else:
                self.read_statement(child, list_operator or operator, nested=nested)
                if list_operator == "||":
                    self.state.folder = reached

    def _read_pipeline(self, node: "Node", operator: str, *, nested: bool) -> None:
        folder = self.state.folder
        end = node.start_byte
        for child in node.children:
            self.state.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in ("|", "|&"):
                operator = child.type
            elif child.type == "comment":
                self.state.check_comment(child)
            else:
                self.read_statement(child, operator, nested=nested)
                self.state.folder = folder

    def _read_group(self, node: "Node", operator: str) -> None:
        children = node.children
        if children[0].type == "((":
            self._commands.words.check_arithmetic(self.state.get_text(node))
            self._commands.words.inspect_nodes(children)
            return
        opening, last = children[0].end_byte, children[-2]
        separated = self.state.source[opening : opening + 1] in (b" ", b"\t", b"\n")
        ended = (
            last.type in (";", "&", "comment") or b"\n" in self.state.source[last.end_byte : children[-1].start_byte]
        )
        if not separated or not (ended or self.state.source[last.end_byte - 1 : last.end_byte] in (b")", b"}")):
            self.state.note_flaw("a brace looks like a group but is not one")
        self._read_body(children, operator)

    def _read_subshell(self, node: "Node", operator: str) -> None:
        folder = self.state.folder
        self._read_body(node.children, operator)
        self.state.folder = folder

    def _read_body(self, children: Sequence["Node"], operator: str) -> None:
        self.state.check_gap(children[0].end_byte, children[1].start_byte, lines=True)
        self.state.check_gap(children[-2].end_byte, children[-1].start_byte, lines=True)
        self._read_statements(children[1:-1], operator, nested=True)

    def _read_branches(self, node: "Node", operator: str) -> None:
        folder = self.state.folder
        self._read_clauses(node, operator, nested=True, tokens=_KEYWORD_TOKENS)
        if self.state.folder != folder:
            self.state.folder = None

    def _read_clauses(self, node: "Node", operator: str, *, nested: bool, tokens: Collection[str]) -> None:
        """Read the commands between the keywords of a compound statement."""
        run: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.state.check_gap(end, child.start_byte, lines=True)
            end = child.end_byte
            if child.type in tokens or child.type in _CLAUSE_NODES:
                self._read_statements(run, operator, nested=nested)
                run = [child] if child.type in _CLAUSE_NODES else []
            else:
                run.append(child)
        self._read_statements(run, operator, nested=nested)

    def _read_for(self, node: "Node", operator: str) -> None:
        name = ""
        values: list[Node] = []
        for child in node.children:
            if child.type == "variable_name" and not name:
                name = self.state.get_text(child)
            elif child.type == "do_group" or child.type == "compound_statement":
                self._assign_each(name, values)
                self._read_branches(child, operator)
            elif child.type in WORD_NODES and child.is_named:
                values.append(child)
            elif child.type not in _KEYWORD_TOKENS:
                self.read_unknown(child)

    def _assign_each(self, name: str, values: Sequence["Node"]) -> None:
        for word in self._commands.words.read_words(values):
            self.state.assign(name, word)

    def _read_c_for(self, node: "Node", operator: str) -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self._read_branches(child, operator)
            elif child.type not in _KEYWORD_TOKENS:
                self._commands.words.check_arithmetic(self.state.get_text(child))
                self._commands.words.inspect_node(child)

    def _read_case(self, node: "Node", operator: str) -> None:
        folder = self.state.folder
        for child in node.children:
            if child.type == "case_item":
                self._read_case_item(child, operator)
                self.state.folder = folder if self.state.folder == folder else None
            elif child.type in WORD_NODES and child.is_named:
                self._commands.words.read_word([child])
            elif child.type not in ("case", "in", "esac", ";", "comment"):
                self.read_unknown(child)

    def _read_case_item(self, node: "Node", operator: str) -> None:
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
        self._read_statements(children[closing + 1 :], operator, nested=True, in_case=True)

    def _check_pattern(self, node: "Node") -> None:
        if node.type == "extglob_pattern" and re.search(r"[$`<>]", self.state.get_text(node)):
            self.state.note_doubt("a pattern contains an expansion")
        self._commands.words.inspect_node(node)

    def _read_function(self, node: "Node") -> None:
        folder = self.state.folder
        redirects = PendingCommand([], [], [])
        for child in node.children:
            if child.type == "word":
                self.state.functions.append(self.state.get_text(child))
            elif child.type in REDIRECT_NODES:
                self._commands.read_redirect(child, redirects)
            elif child.type not in ("function", "(", ")"):
                self.read_statement(child, "", nested=True)
        self.state.folder = folder
        self._commands.flush(redirects, "", nested=True)

    def read_substitution(self, node: "Node") -> None:
        folder = self.state.folder
        children = node.children
        self.state.depth += 1
        if self.state.depth > _MAX_DEPTH:
            self.state.note_flaw("it is nested too deeply")
        elif children[0].type == "`":
            body = self.state.get_text(node)[1:-1]
            self.read_nested_text(re.sub(r"\\([\\`$])", r"\1", body))
        elif children[0].type not in ("$(", "<(", ">(") or children[-1].type != ")":
            self.read_unknown(node)
        elif len(children) > 2:
            self._read_substituted(children)
        self.state.depth -= 1
        self.state.folder = folder

    def _read_substituted(self, children: Sequence["Node"]) -> None:
        inner = children[1:-1]
        if inner[0].type in REDIRECT_NODES:
            pending = PendingCommand([], [], [])
            for child in inner:
                self._commands.read_redirect(child, pending)
            self._commands.flush(pending, "", nested=True)
            return
        self._read_body(children, "")

    def read_nested_text(self, text: str) -> None:
        if self.state.depth > _MAX_DEPTH or len(text) > _MAX_UNCHECKED_CHARS:
            self.state.note_flaw("it is nested too deeply")
            return
        inner = ScriptReader(text.encode("utf-8", "replace"), self.state.folder, self.state.depth + 1)
        inner.read_program(nested=True)
        self.state.merge(inner.state)


def read_script(text: str, folder: str | None = "") -> tuple[ShellScript, str]:
    """Return all commands found in a text, and the reason why some may be missing, or ""."""
    if len(text) > MAX_COMMAND_CHARS:
        return _read_overlong(text), "it is too long to check"
    if len(text) > _MAX_UNCHECKED_CHARS and not _is_sound(text):
        return _read_overlong(text), "it is too long to parse at once, and it has errors or too many parts"
    reader = ScriptReader(text.encode("utf-8", "replace"), folder, 0)
    reader.read_program()
    state = reader.state
    script = ShellScript(
        tuple(state.commands),
        plain=False,
        bodies=tuple(state.bodies),
        doubts=tuple(state.doubts),
        assigned=tuple(state.assigned),
        functions=tuple(state.functions),
        assigned_words=tuple(state.assigned_words),
    )
    return script, state.flaw


def _read_overlong(text: str) -> ShellScript:
    """Return the commands of the beginning and end of an overlong text, read in short pieces."""
    pieces = re.findall(
        r"(?s).{1,400}(?:[;\n]|$)|.{1,400}", text[:_MAX_SKIMMED_CHARS] + text[_MAX_SKIMMED_CHARS:][-_MAX_SKIMMED_CHARS:]
    )
    commands = [simple for piece in pieces for simple in read_script(piece)[0].commands]
    return ShellScript(tuple(commands), plain=False)


def _is_sound(text: str) -> bool:
    """True if a long text has few commands and long quoted texts, and parses without errors once those are removed."""
    if text.count("<<") > _MAX_HEREDOCS:
        return False
    skeleton = _QUOTED.sub("''", _HEREDOC.sub(r"\1\4", text))
    if len(skeleton) > _MAX_UNCHECKED_CHARS:
        return False
    return not _PARSERS.bash.parse(_sanitize_source(skeleton.encode("utf-8", "replace"))).root_node.has_error


def _sanitize_source(source: bytes) -> bytes:
    """Replace characters that would crash the grammar (`_AFTER_BRACE`), and words that it drops (`_DROPPED_DASH`)."""
    return _DROPPED_DASH.sub(b"_", _AFTER_BRACE.sub(lambda match: match[1] + b"_" * len(match[2]), source))


def _is_quoted(root: "Node", at: int) -> bool:
    """True if the byte at this offset is part of a quoted string."""
    node = root.descendant_for_byte_range(at, at + 1)
    return node is not None and node.type in ("raw_string", "string_content")
