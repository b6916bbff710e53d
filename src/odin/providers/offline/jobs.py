"""The small jobs of the lesser model, done without one: titles, summaries, whether enough of a file was seen.

A request says in a line of its system blocks which job it is, so the same request can go to a model or come here.
"""

import re
from collections import Counter
from typing import Any, cast

import msgspec

from odin.core.job import SUFFICIENCY, SUMMARY, TITLE
from odin.core.message import UserMessage
from odin.core.provider import Request

JOB_TITLE = TITLE.marker
JOB_SUMMARY = SUMMARY.marker
JOB_SUFFICIENCY = SUFFICIENCY.marker

TITLE_CHARS = 60
SUMMARY_CHARS = 1200
_MARGIN = 20
_COMMON = (
    "the a an and or but if of in on to for with is are was were be been it this that as at by from not no we you i "
    "they "
    "he she its our your their has have had will can do does did so then than which what when where who how"
)


class LineRange(msgspec.Struct, frozen=True):
    start_line: int
    end_line: int
    reason: str


class Sufficiency(msgspec.Struct, frozen=True):
    """Whether what was seen of a file is enough for an edit, and if not, what to read."""

    is_sufficient: bool
    explanation: str
    suggested_line_ranges: tuple[LineRange, ...] = ()


class EditQuestion(msgspec.Struct, frozen=True):
    """What the sufficiency job is asked, as JSON. `cached_content` has a "Lines a-b" header before each part."""

    file_path: str = ""
    old_string: str = ""
    new_string: str = ""
    cached_content: str = ""
    is_partial: bool = False
    segment_keys: tuple[str, ...] = ()
    total_lines: int = 0


def job_of(request: Request) -> str:
    """Which job a request is, or "" when it is a prompt of a session."""
    for block in request.system:
        found = re.search(r"^odin-job: *[\w-]+", block, re.MULTILINE)
        if found:
            return re.sub(r": *", ": ", found[0])
    properties = (request.schema or {}).get("properties", {})
    if "is_sufficient" in properties:
        return JOB_SUFFICIENCY
    return "odin-job: json" if request.schema else ""


def do_job(job: str, request: Request) -> str:
    """The answer to a job. An unknown job gets the gist of what was sent: the honest best without a model."""
    text = "\n\n".join(message.text for message in request.messages if isinstance(message, UserMessage))
    if job == JOB_SUFFICIENCY:
        return msgspec.json.encode(judge_edit(edit_question(text))).decode()
    if request.schema:
        return msgspec.json.encode(_fill(request.schema, text)).decode()
    if job == JOB_TITLE:
        return offline_title(text)
    return offline_summary(text, min(SUMMARY_CHARS, max(200, request.max_tokens * 3))) or "(nothing to summarise)"


def offline_title(text: str) -> str:
    """A title for a session that began with this prompt: its first line, without courtesy, at most 60 characters."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    first = re.sub(
        r"^(?:(?:please|hi|hello|hey|can you|could you|would you|i want you to)[,!]?\s+)+",
        "",
        first,
        flags=re.IGNORECASE,
    )
    first = re.sub(r"[`*_#]+", "", re.sub(r"\s+", " ", first)).strip(" .!?,;:\"'")
    if not first:
        return "New session"
    first = first[0].upper() + first[1:]
    if len(first) <= TITLE_CHARS:
        return first
    cut = first[: TITLE_CHARS - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[20:] else cut).rstrip(" ,;:-") + "…"


def offline_summary(text: str, limit: int = SUMMARY_CHARS) -> str:
    """The sentences that carry most of the words that recur, in their own order, within `limit` characters."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text[:200_000]) if part.strip()]
    if sum(len(sentence) + 1 for sentence in sentences) <= limit:
        return "\n".join(sentences) if "\n" in text.strip() else " ".join(sentences)
    common = set(_COMMON.split())
    weights = Counter(word for word in re.findall(r"[a-z_]{3,}", text[:200_000].lower()) if word not in common)
    ranked = sorted(range(len(sentences)), key=lambda at: (-_score(sentences[at], at, weights), at))
    chosen: list[int] = []
    room = limit
    for at in ranked:
        recurs = _score(sentences[at], at, weights) > 0
        if recurs and len(sentences[at]) + 1 <= room:
            chosen.append(at)
            room -= len(sentences[at]) + 1
    if not chosen and limit > 1:
        return f"{sentences[0][: limit - 1]}…" if sentences else ""
    return "\n".join(sentences[at] for at in sorted(chosen))


def _score(sentence: str, at: int, weights: "Counter[str]") -> float:
    """How much of a sentence are words that come again elsewhere; the first sentence counts for more."""
    words = re.findall(r"[a-z_]{3,}", sentence.lower())
    recurring = sum(weights[word] for word in words if weights[word] > 1)
    return recurring / (len(words) + 4) + (2.0 if at == 0 else 0.0)


def edit_question(text: str) -> EditQuestion:
    """What is asked, from its JSON form or from the prose of a prompt that spells it out."""
    try:
        return msgspec.json.decode(text, type=EditQuestion)
    except (msgspec.DecodeError, UnicodeError):
        pass
    old = re.search(r"Replace:\s*\"(.*?)\"\s*\n[-*\s]*With:", text, re.DOTALL)
    new = re.search(r"With:\s*\"(.*?)\"\s*(?:\n|$)", text, re.DOTALL)
    path = re.search(r"\*{0,2}File\*{0,2}:\s*(\S+)", text)
    body = re.search(r"Cached Content\*{0,2}:\s*\n(.*?)(?:\n\*\*Your Task|\Z)", text, re.DOTALL)
    content = body[1] if body else text
    return EditQuestion(
        file_path=path[1] if path else "",
        old_string=old[1] if old else "",
        new_string=new[1] if new else "",
        cached_content=content,
        is_partial=bool(re.search(r"^\W*Lines \d+-\d+", content, re.MULTILINE)),
    )


def judge_edit(question: EditQuestion) -> Sufficiency:
    """The careful verdict: enough only when the text to replace was seen exactly once, away from the edge of a part."""
    if not question.old_string:
        return Sufficiency(False, "The text to replace is empty or was not given.")
    parts = _parts(question.cached_content)
    places = [(part, at) for part in parts for at in _occurrences(part[2], question.old_string)]
    if not places:
        return _not_seen(question, parts)
    if len(places) > 1:
        return Sufficiency(
            False, f"The text to replace was seen {len(places)} times; more context must tell which is meant."
        )
    (first, last, content), at = places[0]
    begin = first + content.count("\n", 0, at)
    end = begin + question.old_string.rstrip("\n").count("\n")
    if question.is_partial and (begin - first < 1 or last - end < 1) and not _whole(first, last, question.total_lines):
        near = LineRange(max(1, begin - _MARGIN), end + _MARGIN, "The text to replace is at the edge of what was seen.")
        return Sufficiency(False, f"Line {begin} is at the edge of the part that was seen.", (near,))
    return Sufficiency(True, f"The text to replace was seen once, on line {begin}, with the lines around it.")


def _not_seen(question: EditQuestion, parts: list[tuple[int, int, str]]) -> Sufficiency:
    if not question.is_partial:
        return Sufficiency(False, "The file was seen whole and does not contain the text to replace.")
    last = max((end for _, end, _ in parts), default=0)
    end = question.total_lines or last + 200
    wider = LineRange(1, end, "The text to replace was not in the lines that were seen.")
    return Sufficiency(False, "The text to replace is not in the lines that were seen.", (wider,))


def _whole(first: int, last: int, total: int) -> bool:
    return first == 1 and total > 0 and last >= total


def _occurrences(content: str, wanted: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(wanted), content)]


def _parts(content: str) -> list[tuple[int, int, str]]:
    """The parts between "Lines a-b" headers; without a header the whole is one part from line 1."""
    headers = list(re.finditer(r"^\W*Lines (\d+)-(\d+)\W*\n", content, re.MULTILINE))
    if not headers:
        return [(1, content.count("\n") + 1, content)]
    ends = [*(header.start() for header in headers[1:]), len(content)]
    return [(int(head[1]), int(head[2]), content[head.end() : end]) for head, end in zip(headers, ends, strict=True)]


def _fill(schema: dict[str, Any], text: str) -> Any:
    """The plainest value of a schema: titles and summaries where words are asked for, nothing invented elsewhere."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if "enum" in schema:
        return schema["enum"][0] if schema["enum"] else None
    if kind == "object":
        properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
        required = schema.get("required", list(properties))
        return {name: _named(name, inner, text) for name, inner in properties.items() if name in required}
    plain: dict[str, Any] = {"array": [], "boolean": False, "integer": 0, "number": 0, "null": None}
    return plain[kind] if kind in plain else offline_summary(text, 400)


def _named(name: str, schema: dict[str, Any], text: str) -> Any:
    return offline_title(text) if name == "title" else _fill(schema, text)
