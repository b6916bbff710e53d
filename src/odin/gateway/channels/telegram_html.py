"""Turns Markdown into the HTML that Telegram understands: few tags, and line breaks instead of blocks."""

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

_TAGS = {"strong": "b", "em": "i", "s": "s"}
_SCHEMES = ("http://", "https://", "tg://", "mailto:")


@lru_cache(maxsize=1)
def _get_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable(["reference", "html_block", "html_inline"])


def render_html(markdown: str) -> str:
    from markdown_it.tree import SyntaxTreeNode

    lines = markdown.split("\n")
    return _render_blocks(SyntaxTreeNode(_get_parser().parse(markdown)).children, lines)


def _render_blocks(nodes: "list[SyntaxTreeNode]", lines: list[str], *, quoted: bool = False, gap: str = "\n\n") -> str:
    return gap.join(filter(None, (_render_block(node, lines, quoted=quoted) for node in nodes)))


def _render_block(node: "SyntaxTreeNode", lines: list[str], *, quoted: bool) -> str:
    match node.type:
        case "fence":
            language = escape(node.info.split()[0]) if node.info.strip() else ""
            code = escape(node.content.removesuffix("\n"), quote=False)
            return f'<pre><code class="language-{language}">{code}</code></pre>' if language else f"<pre>{code}</pre>"
        case "code_block":
            return f"<pre>{escape(node.content.removesuffix(chr(10)), quote=False)}</pre>"
        case "heading":
            return f"<b>{_render_inline(node)}</b>"
        case "hr":
            return "———"
        case "blockquote":
            inner = _render_blocks(node.children, lines, quoted=True)
            return inner if quoted or not inner else f"<blockquote>{inner}</blockquote>"  # it cannot be nested
        case "bullet_list" | "ordered_list":
            start = int(node.attrs.get("start", 1))
            items: list[str] = []
            for number, item in enumerate(node.children, start):
                mark = "•" if node.type == "bullet_list" else f"{number}."
                text = _render_blocks(item.children, lines, quoted=quoted, gap="\n")
                items.append(f"{mark} {text}".replace("\n", "\n  ") if "<pre>" not in text else f"{mark} {text}")
            return "\n".join(items)
        case "table":
            first, last = node.map or (0, 0)
            return f"<pre>{escape(chr(10).join(lines[first:last]), quote=False)}</pre>"
        case _:
            return _render_inline(node)


def _render_inline(node: "SyntaxTreeNode") -> str:
    match node.type:
        case "text":
            return escape(node.content, quote=False)
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline":
            return f"<code>{escape(node.content, quote=False)}</code>"
        case "image":
            return escape(node.content or str(node.attrs.get("src", "")), quote=False)
        case _:
            inner = "".join(map(_render_inline, node.children))
    if node.type == "link" and (href := str(node.attrs.get("href", ""))).startswith(_SCHEMES):
        return f'<a href="{escape(href)}">{inner}</a>'
    tag = _TAGS.get(node.type)
    return f"<{tag}>{inner}</{tag}>" if tag else inner
