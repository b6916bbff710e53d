"""Markdown as HTML that can do nothing: every character of the source is escaped, and only our own tags are added.

It knows what models write: headings, lists, tables, quotes, fenced code, emphasis, code and links. Links lead to the
web or to a mail address and nowhere else; an image becomes its words, because showing it would ask a server.

A session as one HTML page that asks nobody for anything: no script, no font, no image from elsewhere.

Everything a session holds is escaped, and a policy in the page forbids what escaping might have missed. What is long is
folded. It reads on a phone, in light and in dark.
"""

import base64
import os
import re
import stat
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

import msgspec

from odin.core.message import Image
from odin.session.export.entries import (
    AnswerEntry,
    CallEntry,
    EndEntry,
    PromptEntry,
    RemarkEntry,
    SessionOverview,
    TodosEntry,
    TranscriptEntry,
    describe_end,
    format_dollars,
    format_duration,
    format_time,
    format_tokens,
    language_of,
    strip_control_codes,
)

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


_IMAGE_BYTES = 3_000_000
_ALL_IMAGE_BYTES = 20_000_000
_MEDIA = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE = """
:root{color-scheme:light dark;--ink:#1d1f23;--soft:#62666d;--paper:#fff;--card:#f5f6f8;--line:#dcdfe4;--mark:#0b62c4;
--plus:#0a6b2d;--plusbg:#e3f6e8;--minus:#a5141c;--minusbg:#fde8e8}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ea;--soft:#9aa0a8;--paper:#15171a;--card:#1e2125;--line:#33373d;
--mark:#6cb0ff;--plus:#7ee2a0;--plusbg:#12301c;--minus:#ff9a9f;--minusbg:#3a1719}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:52rem;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;line-height:1.25;margin:.3rem 0 .6rem}h2{font-size:1.05rem;margin:0}
h3,h4,h5,h6{font-size:1.02rem;margin:1em 0 .4em}
header dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .8rem;margin:0;
color:var(--soft);font-size:.9rem}
dt{font-weight:600}dd{margin:0}
.prompt{margin:2rem 0 1rem;padding:.7rem .9rem;border-left:4px solid var(--mark);background:var(--card);
border-radius:.3rem}
.prompt p{white-space:pre-wrap;margin:.4rem 0 0}
.back{opacity:.6}
.when,.end,.remark{color:var(--soft);font-size:.86rem}
.agent{margin-left:.9rem;padding-left:.7rem;border-left:2px dashed var(--line)}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:.35rem;background:var(--card)}
summary{cursor:pointer;padding:.45rem .7rem;font-size:.9rem}
summary b{font-weight:600}
details>div{padding:0 .7rem .6rem}
pre{margin:.5rem 0;padding:.6rem;overflow-x:auto;background:var(--paper);border:1px solid var(--line);
border-radius:.3rem;font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;tab-size:4;
overflow-wrap:normal}
pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.9em}
.bad{color:var(--minus)}
.diff span{display:block;min-width:max-content}
.diff .p{color:var(--plus);background:var(--plusbg)}.diff .m{color:var(--minus);background:var(--minusbg)}
.diff .h{color:var(--soft)}
ul.todos{list-style:none;padding-left:.2rem;margin:.4rem 0}
img{max-width:100%;height:auto;border-radius:.3rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;overflow-wrap:break-word;font-size:.92rem}
th,td{border:1px solid var(--line);padding:.25rem .5rem;text-align:left}
blockquote{margin:.5rem 0;padding-left:.8rem;border-left:3px solid var(--line);color:var(--soft)}
a{color:var(--mark)}
@media print{details{border:0}}
"""

_CHECKBOXES = {"completed": "\u2611", "cancelled": "\u2612", "in_progress": "\u25b8"}


def write_html(
    overview: SessionOverview, entries: Iterable[TranscriptEntry], mark: str, write: Callable[[str], None], folder: Path
) -> None:
    """`folder` is the session's own: only images from there are put into the page."""
    page = _HtmlPage(folder)
    write(f"<!doctype html>\n{mark}\n{_render_head(overview)}\n<body>\n{_render_header(overview)}\n<main>\n")
    for entry in entries:
        write(page.render_entry(entry))
    write("</main>\n</body>\n</html>\n")


def _render_head(about: SessionOverview) -> str:
    return (
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f"<title>{_escape_text(about.name)}</title>\n<style>{_STYLE}</style>\n</head>"
    )


def _render_header(about: SessionOverview) -> str:
    rows = [
        ("Session", about.session),
        ("Folder", about.cwd),
        ("Model", about.model),
        ("When", f"{format_time(about.created)} to {format_time(about.modified)}"),
        ("Prompts", str(len(about.turns))),
        ("Usage", format_tokens(about.usage)),
    ]
    if len(about.usage_by_model) > 1:
        rows += [(f"\u2022 {model}", format_tokens(usage)) for model, usage in sorted(about.usage_by_model.items())]
    if about.cost_usd:
        rows.append(("Cost", format_dollars(about.cost_usd)))
    listed = "".join(f"<dt>{_escape_text(name)}</dt><dd>{_escape_text(value)}</dd>" for name, value in rows)
    return f"<header>\n<h1>{_escape_text(about.name)}</h1>\n<dl>{listed}</dl>\n</header>"


class _HtmlPage:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._image_bytes = 0

    def render_entry(self, entry: TranscriptEntry) -> str:
        inside = self._render_content(entry)
        agent = "" if isinstance(entry, PromptEntry) else entry.agent
        return f'<div class="agent">{inside}</div>\n' if agent and inside else inside

    def _render_content(self, entry: TranscriptEntry) -> str:
        if isinstance(entry, PromptEntry):
            return _render_prompt(entry, "".join(self._render_image(image) for image in entry.images))
        if isinstance(entry, AnswerEntry):
            return _render_answer(entry)
        if isinstance(entry, CallEntry):
            return self._render_call(entry)
        if isinstance(entry, TodosEntry):
            return _render_todos(entry)
        if isinstance(entry, RemarkEntry):
            return _render_remark(entry)
        return _render_end(entry)

    def _render_call(self, entry: CallEntry) -> str:
        args = msgspec.json.format(msgspec.json.encode(entry.args), indent=2).decode()
        inside = f'<pre class="wrap">{_escape_text(args)}</pre>' if entry.args else ""
        inside += _render_view(entry) if entry.view else ""
        inside += f'<pre class="wrap">{_escape_text(entry.text)}</pre>' if entry.text else ""
        inside += "".join(self._render_image(image) for image in entry.images)
        bad = "" if entry.status == "success" else f' <span class="bad">({entry.status})</span>'
        whose = f"{_escape_text(entry.agent)}: " if entry.agent else ""
        title = " ".join(strip_control_codes(entry.title).split())[:160]
        took = f" · {format_duration(entry.duration_ms)}" if entry.duration_ms else ""
        return _render_details(f"{whose}<b>{_escape_text(entry.name)}</b>{bad} {escape(title)}{took}", inside)

    def _render_image(self, image: Image) -> str:
        data = self._read_image(image)
        if data is None:
            name = _escape_text(image.name or image.path)
            return f'<p class="remark">[an image that is not part of this page: {name}]</p>'
        encoded = base64.b64encode(data).decode()
        return f'<img alt="{_escape_text(image.name or "image")}" src="data:{image.media_type};base64,{encoded}">'

    def _read_image(self, image: Image) -> bytes | None:
        """Only pictures the session keeps itself: a log that names another file does not bring it into the page."""
        if image.media_type not in _MEDIA or "\0" in image.path:
            return None
        path = os.path.realpath(image.path)
        if not Path(path).is_relative_to(os.path.realpath(self._folder)):
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            small = info.st_size <= min(_IMAGE_BYTES, _ALL_IMAGE_BYTES - self._image_bytes)
            if not stat.S_ISREG(info.st_mode) or not small:
                return None
            self._image_bytes += info.st_size
            return file.read(_IMAGE_BYTES)


def _escape_text(text: str) -> str:
    return escape(strip_control_codes(text))


def _render_details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary><div>{inside}</div></details>\n"


def _render_prompt(entry: PromptEntry, images: str) -> str:
    mode = entry.mode.removesuffix("_mode")
    head = "Continued" if entry.continues else (f"Prompt {entry.number}" if entry.number else "Said meanwhile")
    back = " · taken back" if entry.taken_back else ""
    said = "" if entry.continues else f"<p>{_escape_text(entry.text)}</p>"
    kind = "prompt back" if entry.taken_back else "prompt"
    when = f'<span class="when">{mode} · {format_time(entry.ts)}{back}</span>'
    return f'<section class="{kind}"><h2>{head}</h2>{when}{said}{images}</section>\n'


def _render_answer(entry: AnswerEntry) -> str:
    parts: list[str] = []
    if entry.thinking.strip():
        parts.append(_render_details("Thinking", f'<pre class="wrap">{_escape_text(entry.thinking)}</pre>'))
    if entry.text.strip():
        whose = f'<p class="when">{_escape_text(entry.agent)}</p>' if entry.agent else ""
        cut = '<p class="remark">(interrupted here)</p>' if entry.interrupted else ""
        parts.append(
            f'<article class="answer">{whose}{render_markdown(strip_control_codes(entry.text))}{cut}</article>\n'
        )
    return "".join(parts)


def _render_view(entry: CallEntry) -> str:
    if language_of(entry.name, entry.view) != "diff":
        return f'<pre class="wrap">{_escape_text(entry.view)}</pre>'
    lines = "".join(_render_diff_line(line) for line in strip_control_codes(entry.view).rstrip("\n").split("\n"))
    return f'<pre class="diff">{lines}</pre>'


def _render_diff_line(line: str) -> str:
    kind = "h" if line.startswith(("@@", "--- ", "+++ ")) else {"+": "p", "-": "m"}.get(line[:1], "")
    return f'<span class="{kind}">{escape(line) or " "}</span>' if kind else f"<span>{escape(line) or ' '}</span>"


def _render_todos(entry: TodosEntry) -> str:
    items = "".join(
        f"<li>{_CHECKBOXES.get(todo.status, chr(0x2610))} {_escape_text(todo.content)}</li>" for todo in entry.todos
    )
    return f'<ul class="todos">{items}</ul>\n'


def _render_remark(entry: RemarkEntry) -> str:
    if entry.detail:
        return _render_details(_escape_text(entry.text), f'<pre class="wrap">{_escape_text(entry.detail)}</pre>')
    return f'<p class="remark">{_escape_text(entry.text)}</p>\n'


def _render_end(entry: EndEntry) -> str:
    return "" if entry.agent else f'<p class="end">{_escape_text(describe_end(entry))}</p>\n'
