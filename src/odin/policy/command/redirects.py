"""Redirections and here-documents: what they open, and what the text of a here-document runs."""

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.policy.command.pieces import WORDS, PieceReader
from odin.policy.command.shapes import Redirect, Word

if TYPE_CHECKING:
    from tree_sitter import Node

REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_STREAM = re.compile(r"\d+-?|-|[A-Za-z_./~][\w./~-]*")


class Open(Struct):
    """The simple command that is being read, and what follows it on the line of a here-document."""

    words: list[Word]
    redirects: list[Redirect]
    rest: "list[tuple[str, Node]]"


class RedirectReader(PieceReader):
    """Reads what stands after `<`, `>` and their kin."""

    @abstractmethod
    def unknown(self, node: "Node") -> None:
        """Take what can be read in a node that should not be there as commands, so that nothing forbidden hides."""
        ...

    @abstractmethod
    def is_statement(self, kind: str) -> bool: ...

    @abstractmethod
    def take_body(self, body: str) -> None:
        """Keep the text of a here-document."""
        ...

    def _redirect(self, node: "Node", opened: Open) -> None:
        if node.type == "heredoc_redirect":
            self._heredoc(node, opened)
            return
        fd = op = ""
        loose: list[Node] = []
        end = node.start_byte
        for child in node.children:
            self.blank(end, child.start_byte)
            if child.type == "file_descriptor":
                fd = self.text(child)
            elif child.type in WORDS:
                loose.append(child)
            elif child.type == "ERROR" and op == "<" and self.text(child) == ">" and end == child.start_byte:
                op = "<>"
            elif not op and not child.is_named:
                op = child.type
            else:
                self.unknown(child)
            end = child.end_byte
        words = self.words(loose)
        if op in ("<&-", ">&-"):
            words.insert(0, Word("-"))
            op = op[:2]
        if not words or not op:
            self.broken("a redirection has no target")
            return
        if op in (">&", "<&") and not _STREAM.fullmatch(words[0].text):
            self.doubt("a redirection may run what its target holds")
        opened.redirects.append(Redirect(fd, op, words[0]))
        opened.words += words[1:]

    def _heredoc(self, node: "Node", opened: Open) -> None:
        op = start = fd = rest = ""
        seen = 0
        finish = node.end_byte
        line_end = node.start_byte
        for child in node.children:
            kind = child.type
            if kind in ("heredoc_body", "heredoc_end"):
                finish = child.start_byte if kind == "heredoc_end" else finish
                seen += sum(item.type == "command_substitution" for item in child.children)
                self.inside_all(child.children)
                continue
            line_end = child.end_byte
            if kind in ("<<", "<<-"):
                op = kind
            elif kind == "file_descriptor":
                fd = self.text(child)
            elif kind == "heredoc_start":
                start = self.text(child)
            elif kind in ("&&", "||"):
                rest = kind
            elif kind in REDIRECTS:
                self._redirect(child, opened)
            elif kind in WORDS:
                opened.words.append(self.word([child]))
            elif self.is_statement(kind):
                opened.rest.append((rest or "|", child))
            else:
                self.unknown(child)
        delimiter = re.sub(r"['\"\\]", "", start)
        opened.redirects.append(Redirect(fd, op, Word(delimiter, quoted=delimiter != start)))
        body = self._body_text(op, delimiter, line_end, finish)
        self.take_body(body)
        if start == delimiter:
            self._expanding(body, seen)

    def _body_text(self, op: str, delimiter: str, line_end: int, finish: int) -> str:
        gap = self.source.find(b"\n", line_end)
        body = self.source[gap + 1 : finish].decode("utf-8", "replace") if 0 <= gap < finish else ""
        self.blank(line_end, max(gap, line_end))
        lines = [line.lstrip("\t") if op == "<<-" else line for line in body.split("\n")]
        last = self.source[finish:].decode("utf-8", "replace").split("\n", 1)[0]
        if delimiter in lines[:-1] or last != delimiter or lines[-1] or not re.fullmatch(r"\w+", delimiter):
            self.broken("the end of a here-document cannot be told for certain")
        return body

    def _expanding(self, body: str, seen: int) -> None:
        """A here-document without quotes runs what it holds; `seen` of its substitutions have been read."""
        if "`" in body or re.search(r"\$[\[{]", body) or len(re.findall(r"(?<!\\)\$\(", body)) != seen:
            self.doubt("a here-document holds expansions")
        for inner in re.findall(r"(?<!\\)`([^`]*)`", body):
            self.again(inner)
