"""Writes a session as one self-contained HTML page: no script, no font and no image from elsewhere.

All session content is escaped, and a content security policy in the page blocks anything the escaping might miss.
Long parts are folded. The page reads well on a phone and has a light and a dark theme.
"""

import base64
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin.core.format import format_time, format_usd
from odin.core.message import Image
from odin.session.export_entries import (
    AnswerEntry,
    CallEntry,
    PromptEntry,
    RemarkEntry,
    SessionOverview,
    TodosEntry,
    TranscriptEntry,
    describe_end,
    format_duration,
    format_tokens,
    get_language,
    strip_control_codes,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MAX_NESTING = 20
_MAX_MARKDOWN_CHARS = 100_000
"""Longer answers are shown verbatim: they are data rather than prose, and parsing them would take too long."""


def render_markdown(text: str) -> str:
    """Return the Markdown as inert HTML.

    Raw HTML in the source is escaped. Links lead to the web or to a mail address; the target of any other link is shown
    as text. Images become their alternative text, because loading one would contact a server.
    """
    if len(text) > _MAX_MARKDOWN_CHARS:
        return f'<pre class="wrap">{escape(text)}</pre>\n'
    return _make_markdown_parser().render(text)


@cache
def _make_markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt(
        "commonmark", {"html": False, "xhtmlOut": False, "breaks": True, "linkify": True, "maxNesting": _MAX_NESTING}
    ).enable(["table", "strikethrough", "linkify"])
    if parser.linkify is not None:
        parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False})  # pyright: ignore[reportUnknownMemberType]
    parser.validateLink = lambda url: True  # `_render_link_open` decides, so that a refused target stays readable
    for name, rule in _MARKDOWN_RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _render_heading(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    """Start at <h3>: the page uses <h1> and <h2> itself."""
    level = min(int(tokens[index].tag[1:]) + 2, 6)
    return f"<h{level}>" if tokens[index].nesting > 0 else f"</h{level}>\n"


def _render_code(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    return f"<pre><code>{escape(tokens[index].content.rstrip(chr(10)))}</code></pre>\n"


def _render_table_open(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    return '<div class="wide"><table>\n'


def _render_table_close(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    return "</table></div>\n"


def _render_image_text(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    return f"<em>[image: {escape(tokens[index].content)}]</em>"


def _render_link_open(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    target = _get_link_target(tokens[index])
    return f'<a href="{escape(target)}" rel="noopener noreferrer nofollow">' if _SAFE_LINK.match(target) else ""


def _render_link_close(renderer: Any, tokens: "Sequence[Token]", index: int, *_: Any) -> str:
    opening = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
    target = _get_link_target(opening)
    return "</a>" if _SAFE_LINK.match(target) else f" ({escape(target)})"


def _get_link_target(token: "Token") -> str:
    return str(token.attrGet("href") or "")


_MARKDOWN_RULES: dict[str, Callable[..., str]] = {
    "heading_open": _render_heading,
    "heading_close": _render_heading,
    "fence": _render_code,
    "code_block": _render_code,
    "table_open": _render_table_open,
    "table_close": _render_table_close,
    "image": _render_image_text,
    "link_open": _render_link_open,
    "link_close": _render_link_close,
}


MAX_IMAGE_BYTES = 3_000_000
MAX_ALL_IMAGE_BYTES = 20_000_000
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
    """Only images inside `folder`, the session's own folder, are embedded."""
    page = _HtmlPage(folder)
    write(f"<!doctype html>\n{mark}\n{render_head(overview.name)}\n<body>\n{_render_header(overview)}\n<main>\n")
    for entry in entries:
        write(page.render_entry(entry))
    write("</main>\n</body>\n</html>\n")


def render_head(title: str, more_style: str = "") -> str:
    """Return the start of a page that loads nothing and runs nothing."""
    return (
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f"<title>{escape_text(title)}</title>\n<style>{_STYLE}{more_style}</style>\n</head>"
    )


def _render_header(overview: SessionOverview) -> str:
    rows = [
        ("Session", overview.session),
        ("Folder", overview.cwd),
        ("Model", overview.model),
        ("When", f"{format_time(overview.created)} to {format_time(overview.modified)}"),
        ("Prompts", str(len(overview.turns))),
        ("Usage", format_tokens(overview.usage)),
    ]
    if len(overview.usage_by_model) > 1:
        rows += [(f"\u2022 {model}", format_tokens(usage)) for model, usage in sorted(overview.usage_by_model.items())]
    if overview.cost_usd:
        rows.append(("Cost", format_usd(overview.cost_usd)))
    items = "".join(f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>" for name, value in rows)
    return f"<header>\n<h1>{escape_text(overview.name)}</h1>\n<dl>{items}</dl>\n</header>"


class _HtmlPage:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._image_bytes = 0

    def render_entry(self, entry: TranscriptEntry) -> str:
        body = self._render_content(entry)
        agent = "" if isinstance(entry, PromptEntry) else entry.agent
        return f'<div class="agent">{body}</div>\n' if agent and body else body

    def _render_content(self, entry: TranscriptEntry) -> str:
        if isinstance(entry, PromptEntry):
            return _render_prompt(entry, "".join(self._render_image(image) for image in entry.images))
        if isinstance(entry, AnswerEntry):
            return _render_answer(entry)
        if isinstance(entry, CallEntry):
            args = msgspec.json.format(msgspec.json.encode(entry.args), indent=2).decode()
            body = f'<pre class="wrap">{escape_text(args)}</pre>' if entry.args else ""
            body += _render_view(entry) if entry.view else ""
            body += f'<pre class="wrap">{escape_text(entry.text)}</pre>' if entry.text else ""
            body += "".join(self._render_image(image) for image in entry.images)
            status = "" if entry.status == "success" else f' <span class="bad">({entry.status})</span>'
            agent = f"{escape_text(entry.agent)}: " if entry.agent else ""
            title = " ".join(strip_control_codes(entry.title).split())[:160]
            duration = f" · {format_duration(entry.duration_ms)}" if entry.duration_ms else ""
            return _render_details(f"{agent}<b>{escape_text(entry.name)}</b>{status} {escape(title)}{duration}", body)
        if isinstance(entry, TodosEntry):
            items = "".join(
                f"<li>{_CHECKBOXES.get(todo.status, chr(0x2610))} {escape_text(todo.content)}</li>"
                for todo in entry.todos
            )
            return f'<ul class="todos">{items}</ul>\n'
        if isinstance(entry, RemarkEntry):
            return _render_remark(entry)
        return "" if entry.agent else f'<p class="end">{escape_text(describe_end(entry))}</p>\n'

    def _render_image(self, image: Image) -> str:
        data = self._read_image(image)
        if data is None:
            name = escape_text(image.name or image.path)
            return f'<p class="remark">[image not embedded: {name}]</p>'
        encoded = base64.b64encode(data).decode()
        return f'<img alt="{escape_text(image.name or "image")}" src="data:{image.media_type};base64,{encoded}">'

    def _read_image(self, image: Image) -> bytes | None:
        data = read_image(image, self._folder, min(MAX_IMAGE_BYTES, MAX_ALL_IMAGE_BYTES - self._image_bytes))
        self._image_bytes += len(data or b"")
        return data


def read_image(image: Image, folder: Path, max_bytes: int) -> bytes | None:
    """Return the bytes of an image in the folder, to which its path may be relative.

    None for any other or longer file, even if the log names it.
    """
    if image.media_type not in _MEDIA or "\0" in image.path:
        return None
    path = os.path.realpath(Path(folder, image.path))
    if not Path(path).is_relative_to(os.path.realpath(folder)):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
            return None
        return file.read(max_bytes)


def escape_text(text: str) -> str:
    return escape(strip_control_codes(text))


def _render_details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary><div>{body}</div></details>\n"


def _render_prompt(entry: PromptEntry, images: str) -> str:
    mode = entry.mode.removesuffix("_mode")
    head = "Continued" if entry.continues else (f"Prompt {entry.number}" if entry.number else "Prompt during the turn")
    rewound = " · rewound" if entry.rewound else ""
    text = "" if entry.continues else f"<p>{escape_text(entry.text)}</p>"
    kind = "prompt back" if entry.rewound else "prompt"
    when = f'<span class="when">{mode} · {format_time(entry.ts)}{rewound}</span>'
    return f'<section class="{kind}"><h2>{head}</h2>{when}{text}{images}</section>\n'


def _render_answer(entry: AnswerEntry) -> str:
    parts: list[str] = []
    if entry.thinking.strip():
        parts.append(_render_details("Thinking", f'<pre class="wrap">{escape_text(entry.thinking)}</pre>'))
    if entry.text.strip():
        agent = f'<p class="when">{escape_text(entry.agent)}</p>' if entry.agent else ""
        ending = '<p class="remark">(interrupted here)</p>' if entry.interrupted else ""
        parts.append(
            f'<article class="answer">{agent}{render_markdown(strip_control_codes(entry.text))}{ending}</article>\n'
        )
    return "".join(parts)


def _render_view(entry: CallEntry) -> str:
    if get_language(entry.view) != "diff":
        return f'<pre class="wrap">{escape_text(entry.view)}</pre>'
    lines = "".join(_render_diff_line(line) for line in strip_control_codes(entry.view).rstrip("\n").split("\n"))
    return f'<pre class="diff">{lines}</pre>'


def _render_diff_line(line: str) -> str:
    kind = "h" if line.startswith(("@@", "--- ", "+++ ")) else {"+": "p", "-": "m"}.get(line[:1], "")
    return f'<span class="{kind}">{escape(line) or " "}</span>' if kind else f"<span>{escape(line) or ' '}</span>"


def _render_remark(entry: RemarkEntry) -> str:
    if entry.detail:
        return _render_details(escape_text(entry.text), f'<pre class="wrap">{escape_text(entry.detail)}</pre>')
    return f'<p class="remark">{escape_text(entry.text)}</p>\n'
