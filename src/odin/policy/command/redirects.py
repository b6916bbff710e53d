"""Redirections and here-documents: what they open, and what the text of a here-document runs."""

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.policy.command.pieces import WORD_NODES, WordReader
from odin.policy.command.shapes import Redirect, ShellWord

if TYPE_CHECKING:
    from tree_sitter import Node

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
