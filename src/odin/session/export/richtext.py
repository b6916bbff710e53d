"""Markdown as HTML that can do nothing: every character of the source is escaped, and only our own tags are added.

It knows what models write: headings, lists, tables, quotes, fenced code, emphasis, code and links. Links lead to the
web or to a mail address and nowhere else; an image becomes its words, because showing it would ask a server.
"""

import re
from html import escape

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*$")
_RULE = re.compile(r" {0,3}(?:-\s*){3,}$| {0,3}(?:\*\s*){3,}$| {0,3}(?:_\s*){3,}$")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])\s+(.*)")
_SEPARATOR = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_INLINE = re.compile(
    r"(?P<code>(?P<ticks>`+)(?P<span>[^`\n][^\n]{0,2000}?)(?P=ticks)(?!`))"
    r"|!\[(?P<alt>[^\]\n]{0,500})\]\([^)\n]{0,2000}\)"
    r"|\[(?P<label>[^\]\n]{1,500})\]\((?P<to>[^)\s]{1,2000})(?:\s+\"[^\"\n]{0,200}\")?\)"
    r"|(?P<url>https?://[^\s<>\"'`)\]]{1,2000})"
    r"|\*\*(?P<strong>[^\s*][^\n]{0,2000}?)\*\*"
    r"|(?<!\w)\*(?P<em>[^\s*][^*\n]{0,2000}?)\*(?!\w)"
    r"|~~(?P<gone>[^\n~]{1,2000})~~"
)
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MAX_DEPTH = 6
_LOOKAHEAD_LINES = 20
_MAX_LINE_CHARS = 20_000
"""A line longer than this is data, not prose; it is shown as it is."""


def render_markdown(text: str, depth: int = 0) -> str:
    """The text as a few blocks of HTML."""
    return "".join(_MarkdownBlocks(text.split("\n"), depth).render_all())


class _MarkdownBlocks:
    def __init__(self, lines: list[str], depth: int) -> None:
        self._lines = lines
        self._depth = depth
        self._at = 0

    def render_all(self) -> list[str]:
        out: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._at += 1
            else:
                out.append(self._render_block(line))
        return out

    def _render_block(self, line: str) -> str:
        if found := _FENCE.match(line):
            return self._render_code(found)
        if found := _HEADING.match(line):
            self._at += 1
            level = min(len(found[1]) + 2, 6)
            return f"<h{level}>{render_inline(found[2])}</h{level}>\n"
        if _RULE.match(line):
            self._at += 1
            return "<hr>\n"
        if self._depth < _MAX_DEPTH and line.lstrip().startswith(">"):
            return self._render_quote()
        if self._depth < _MAX_DEPTH and _ITEM.match(line):
            return self._render_list()
        if "|" in line and self._at + 1 < len(self._lines) and _is_separator(self._lines[self._at + 1]):
            return self._render_table()
        return self._render_paragraph()

    def _render_code(self, found: re.Match[str]) -> str:
        mark = found[1]
        inside: list[str] = []
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            bare = line.strip()
            if bare.startswith(mark) and not bare.strip(mark[0]):
                break
            inside.append(line)
        return f"<pre><code>{escape(chr(10).join(inside))}</code></pre>\n"

    def _render_quote(self) -> str:
        inside: list[str] = []
        while self._at < len(self._lines) and self._lines[self._at].lstrip().startswith(">"):
            inside.append(re.sub(r"^\s*> ?", "", self._lines[self._at]))
            self._at += 1
        return f"<blockquote>{render_markdown(chr(10).join(inside), self._depth + 1)}</blockquote>\n"

    def _render_list(self) -> str:
        found = _ITEM.match(self._lines[self._at])
        tag = "ol" if found is not None and found[2][0].isdigit() else "ul"
        base = len(found[1]) if found is not None else 0
        items: list[list[str]] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            item = _ITEM.match(line)
            if item is not None and len(item[1]) < base + 2:
                if ("ol" if item[2][0].isdigit() else "ul") != tag:
                    break
                items.append([item[3]])
            elif line.startswith(("  ", "\t")):
                items[-1].append(_dedent_line(line))
            elif line.strip() or not self._is_list_continued():
                break
            else:
                items[-1].append("")
            self._at += 1
        body = "".join(f"<li>{self._render_item(lines)}</li>\n" for lines in items)
        return f"<{tag}>\n{body}</{tag}>\n"

    def _is_list_continued(self) -> bool:
        """Whether a blank line stands inside the list."""
        ahead = self._lines[self._at + 1 : self._at + 1 + _LOOKAHEAD_LINES]
        following = next((line for line in ahead if line.strip()), "")
        return following.startswith(("  ", "\t")) or _ITEM.match(following) is not None

    def _render_item(self, lines: list[str]) -> str:
        if len(lines) == 1:
            return render_inline(lines[0])
        return render_markdown("\n".join(lines), self._depth + 1)

    def _render_table(self) -> str:
        rows = [_split_cells(self._lines[self._at])]
        self._at += 2
        while self._at < len(self._lines) and "|" in self._lines[self._at] and self._lines[self._at].strip():
            rows.append(_split_cells(self._lines[self._at]))
            self._at += 1
        head = "".join(f"<th>{render_inline(cell)}</th>" for cell in rows[0])
        body = "".join(f"<tr>{''.join(f'<td>{render_inline(cell)}</td>' for cell in row)}</tr>\n" for row in rows[1:])
        return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>\n'

    def _render_paragraph(self) -> str:
        lines = [self._lines[self._at]]
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip() or _FENCE.match(line) or _HEADING.match(line) or _ITEM.match(line):
                break
            lines.append(line)
            self._at += 1
        return f"<p>{'<br>'.join(render_inline(line.strip()) for line in lines)}</p>\n"


def _dedent_line(line: str) -> str:
    """One level less."""
    if line.startswith("\t"):
        return line[1:]
    return line.removeprefix("  ").removeprefix(" ") if not line.startswith("    ") else line[4:]


def _is_separator(line: str) -> bool:
    return "-" in line and len(line) < 2000 and _SEPARATOR.match(line) is not None


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def render_inline(text: str, depth: int = 0) -> str:
    """One line with its emphasis, code and links."""
    if depth > _MAX_DEPTH or len(text) > _MAX_LINE_CHARS:
        return escape(text)
    out: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        out.append(escape(text[at : found.start()]))
        out.append(_render_mark(found, depth))
        at = found.end()
    out.append(escape(text[at:]))
    return "".join(out)


def _render_mark(found: re.Match[str], depth: int) -> str:
    group = found.groupdict()
    if group["code"] is not None:
        return f"<code>{escape(group['span'].strip())}</code>"
    if group["alt"] is not None:
        return f"<em>[image: {escape(group['alt'])}]</em>"
    if group["label"] is not None:
        label = escape(group["label"]) if "://" in group["label"] else render_inline(group["label"], depth + 1)
        return _render_link(group["to"], label) if _SAFE_LINK.match(group["to"]) else f"{label} ({escape(group['to'])})"
    if group["url"] is not None:
        return _render_link(group["url"], escape(group["url"]))
    for name, tag in (("strong", "strong"), ("em", "em"), ("gone", "s")):
        if group[name] is not None:
            return f"<{tag}>{render_inline(group[name], depth + 1)}</{tag}>"
    return escape(found[0])


def _render_link(to: str, label: str) -> str:
    return f'<a href="{escape(to)}" rel="noopener noreferrer nofollow">{label}</a>'
