"""The bones of a file: classes, functions, headings, sections, with their lines. By pattern, not by parser."""

import re
from collections.abc import Iterable

from msgspec import Struct

_MAX_OUTLINE_ENTRIES = 400


class OutlineEntry(Struct, frozen=True):
    line: int
    level: int
    title: str


_C_LIKE = (
    r"^(?P<indent>\s*)(?P<title>(?:(?:public|private|protected|internal|static|final|abstract|async|override|export|default|"
    r"sealed|partial|readonly|unsafe|virtual|inline|constexpr|extern|pub(?:\([^)]*\))?)\s+)*"
    r"(?:class|interface|enum|struct|trait|record|namespace|module|object|protocol|extension|impl|fn|func|function\*?|mod|union)\b[^{;=]*)"
)
_JS_ARROW = r"^(?P<indent>)(?P<title>(?:export\s+)?(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*=>)"
_OUTLINE_PATTERNS: dict[str, tuple[str, ...]] = {
    "py pyi": (r"^(?P<indent>\s*)(?P<title>(?:async\s+def|def|class)\s+\w+[^:]*)",),
    "rb ex exs": (r"^(?P<indent>\s*)(?P<title>(?:class|module|def|defp|defmodule)\s+[^\s;]+(?:\([^)]*\))?)",),
    "go": (r"^(?P<indent>)(?P<title>(?:func|type)\s+[^{]+)",),
    "js mjs cjs jsx ts tsx vue svelte": (_C_LIKE, _JS_ARROW),
    "rs java kt kts cs swift scala php dart": (
        _C_LIKE,
        r"^(?P<indent>\s+)(?P<title>(?:public|private|protected|internal)\s+[\w<>\[\], ]+\([^)]*\))",
    ),
    "c h cpp hpp cc hh": (_C_LIKE, r"^(?P<indent>)(?P<title>[A-Za-z_][\w\s*&:<>]*\([^;]*\))\s*\{?\s*$"),
    "sh bash zsh": (
        r"^(?P<indent>\s*)(?P<title>(?:function\s+)?[\w-]+\s*\(\))",
        r"^(?P<indent>\s*)(?P<title>function\s+[\w-]+)",
    ),
    "md rst adoc": (r"^(?P<hashes>#{1,6})\s+(?P<title>.+?)\s*#*$",),
    "toml ini cfg conf": (r"^(?P<indent>)(?P<title>\[\[?[^\]]+\]\]?)",),
    "yaml yml": (r"^(?P<indent>)(?P<title>[\w.-]+):",),
    "json": (r"^(?P<indent>(?: {2}|\t| {4}))\"(?P<title>[^\"]+)\"\s*:",),
    "sql": (r"^(?P<indent>\s*)(?P<title>create\s+(?:or\s+replace\s+)?\w+\s+[^\s(]+)",),
    "lua pl pm": (r"^(?P<indent>\s*)(?P<title>(?:local\s+)?(?:function|sub|package)\s+[^\s({]+)",),
    "html htm": (r"^(?P<indent>)\s*<h(?P<depth>[1-6])[^>]*>(?P<title>[^<]+)",),
    "make": (r"^(?P<indent>)(?P<title>[A-Za-z][\w./-]*)\s*:(?!=)",),
    "css scss": (r"^(?P<indent>)(?P<title>[^\s@{}][^{}]*?)\s*\{",),
}


def outline_of(name: str, lines: Iterable[tuple[int, str]]) -> list[OutlineEntry]:
    """The marks of a file whose kind its name tells. An unknown kind is looked at as if it were Markdown."""
    base = name.rsplit("/", 1)[-1].lower()
    kind = "make" if base in ("makefile", "gnumakefile") else base.rsplit(".", 1)[-1]
    patterns = next(
        (found for kinds, found in _OUTLINE_PATTERNS.items() if kind in kinds.split()), _OUTLINE_PATTERNS["md rst adoc"]
    )
    compiled = [re.compile(pattern, re.IGNORECASE if kind == "sql" else 0) for pattern in patterns]
    fenced = kind == "md" or patterns is _OUTLINE_PATTERNS["md rst adoc"]
    marks: list[OutlineEntry] = []
    inside_fence = False
    for number, text in lines:
        if fenced and text.lstrip().startswith(("```", "~~~")):
            inside_fence = not inside_fence
        if inside_fence or len(marks) >= _MAX_OUTLINE_ENTRIES:
            continue
        found = next((match for pattern in compiled if (match := pattern.match(text[:400]))), None)
        if found and not _is_noise(found["title"]):
            marks.append(OutlineEntry(number, _level_of(found, kind), _tidy_title(found["title"])))
    return marks


def _is_noise(title: str) -> bool:
    return bool(re.match(r"(?:if|for|while|switch|return|else|catch)\b", title.strip()))


def _level_of(found: "re.Match[str]", kind: str) -> int:
    groups = found.groupdict()
    if groups.get("hashes"):
        return len(groups["hashes"]) - 1
    if groups.get("depth"):
        return int(groups["depth"]) - 1
    if kind == "json":
        return 0
    indent = (groups.get("indent") or "").expandtabs(4)
    return min(len(indent) // (2 if kind in ("rb", "ex", "exs", "js", "ts", "tsx", "jsx") else 4), 6)


def _tidy_title(title: str) -> str:
    short = re.sub(r"\s+", " ", title).strip().rstrip("{").rstrip()
    return short if len(short) <= 110 else f"{short[:109]}…"


def extract_first_paragraph(name: str, text: str) -> str:
    """What a file says about itself at its start: a docstring, a leading comment, the first paragraph of prose."""
    ending = name.rsplit(".", 1)[-1].lower()
    if ending in ("md", "txt", "rst", "adoc", "org") or "." not in name.rsplit("/", 1)[-1]:
        return _extract_prose(text)
    if ending in ("json", "toml", "yaml", "yml", "ini", "cfg", "csv", "html", "htm"):
        return ""
    docstring = re.match(r"\s*(?:#.*\n\s*)*[rRuU]?(\"\"\"|''')(.*?)\1", text[:8000], re.DOTALL)
    if docstring:
        return _shorten_paragraph(docstring[2])
    block = re.match(r"\s*/\*+(.*?)\*/", text[:8000], re.DOTALL)
    if block:
        return _shorten_paragraph(re.sub(r"(?m)^\s*\* ?", "", block[1]))
    comment = re.match(r"(?:#!.*\n)?\s*((?:(?://|#|--|;)[^\n]*\n)+)", text[:8000])
    return _shorten_paragraph(re.sub(r"(?m)^\s*(?:///?!?|#+|--|;+) ?", "", comment[1])) if comment else ""


def _extract_prose(text: str) -> str:
    for block in re.split(r"\n\s*\n", text[:20_000]):
        lines = [line.strip() for line in block.strip().splitlines()]
        lines = [line for line in lines if line and not re.match(r"#|[=\-~^*]{3,}$|!\[|\[!\[|<|```|\||>", line)]
        if lines and re.search(r"[A-Za-z]{3}", lines[0]):
            return _shorten_paragraph(" ".join(lines))
    return ""


def _shorten_paragraph(text: str) -> str:
    first = re.split(r"\n\s*\n", text.strip())[0]
    flat = re.sub(r"\s+", " ", first).strip()
    return flat if len(flat) <= 600 else f"{flat[:599].rsplit(' ', 1)[0]}…"
