"""The small jobs done without a model: titles, summaries, answers from a page, edit checks.

A line in the system blocks names the job, so the same request can go to a model or come here.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.core.small_jobs import (
    CONTEXT_SUMMARY_JOB,
    SUFFICIENCY_JOB,
    SUMMARY_JOB,
    TITLE_JOB,
    WEB_ANSWER_JOB,
    CollectedContext,
    EditReview,
    LineRange,
    PageQuestion,
    PlannedEdit,
    Sufficiency,
    join_passages,
    passages_of,
    rank_passages,
    select_fitting,
    split_line_headers,
    words_of,
)

ANSWER_CHARS = 3000
GIST_CHARS = 6000


def answer_from_page(question: PageQuestion) -> str:
    """Return the passages of a page that match the question best, in order, under their headings."""
    passages = passages_of(question.page)
    chosen = select_fitting(passages, rank_passages(passages, question.prompt), ANSWER_CHARS)
    if chosen:
        return f"(No model answered: these passages match the question best.)\n\n{join_passages(passages, chosen)}"
    start = question.page[: ANSWER_CHARS // 2].rstrip()
    return f"(No model answered: no passage matches the question, so this is the beginning of the page.)\n\n{start}"


def gist_of(gathered: CollectedContext) -> str:
    """Return each item's title and its most relevant lines for the focus, in equal shares."""
    share = max(160, GIST_CHARS // max(1, len(gathered.items)))
    wanted = words_of(gathered.focus)
    extracts = [f"- {title}\n{_pick_lines(body, wanted, share - len(title))}" for title, body in gathered.items]
    return "\n".join(["(No model summarized this: the lines below are extracts.)", *extracts])


def _pick_lines(body: str, wanted: set[str], room: int) -> str:
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    matching = {at for at, line in enumerate(lines) if wanted & words_of(line)}
    order = [*sorted(matching), *(at for at in range(len(lines)) if at not in matching)]
    chosen: list[int] = []
    for at in order:
        room -= min(len(lines[at]), 200) + 3
        if room < 0 and chosen:
            break
        chosen.append(at)
    return "\n".join(f"  {lines[at][:200]}" for at in sorted(chosen))


JOB_TITLE = TITLE_JOB.marker
JOB_SUMMARY = SUMMARY_JOB.marker
JOB_SUFFICIENCY = SUFFICIENCY_JOB.marker

TITLE_CHARS = 60
SUMMARY_CHARS = 1200
_COMMON_WORDS = (
    "the a an and or but if of in on to for with is are was were be been it this that as at by from not no we you i "
    "they "
    "he she its our your their has have had will can do does did so then than which what when where who how"
)


def job_of(request: Request) -> str:
    """Return the job of a request, or "" if it is a prompt of a session."""
    for block in request.system:
        found = re.search(r"^odin-job: *[\w-]+", block, re.MULTILINE)
        if found:
            return re.sub(r": *", ": ", found[0])
    properties = (request.schema or {}).get("properties", {})
    if "is_sufficient" in properties:
        return JOB_SUFFICIENCY
    return "odin-job: json" if request.schema else ""


def do_job(job: str, request: Request) -> str:
    """Return the answer to a job. An unknown job gets an extract of the input."""
    text = "\n\n".join(message.text for message in request.messages if isinstance(message, PromptMessage))
    if job == JOB_SUFFICIENCY:
        return msgspec.json.encode(judge_edit(parse_edit_review(text))).decode()
    if request.schema:
        return msgspec.json.encode(_fill_schema(request.schema, text)).decode()
    if job == JOB_TITLE:
        return make_offline_title(text)
    if job == WEB_ANSWER_JOB.marker:
        return answer_from_page(PageQuestion.parse(text))
    if job == CONTEXT_SUMMARY_JOB.marker:
        return gist_of(CollectedContext.parse(text))
    return make_offline_summary(text, min(SUMMARY_CHARS, max(200, request.max_tokens * 3))) or "(nothing to summarize)"


def make_offline_title(text: str) -> str:
    """Return a session title: the first line of the prompt without polite words, at most 60 characters."""
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


def make_offline_summary(text: str, limit: int = SUMMARY_CHARS) -> str:
    """Return the sentences with the most recurring words, in order, within `limit` characters."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text[:200_000]) if part.strip()]
    if sum(len(sentence) + 1 for sentence in sentences) <= limit:
        return "\n".join(sentences) if "\n" in text.strip() else " ".join(sentences)
    common = set(_COMMON_WORDS.split())
    weights = Counter(word for word in re.findall(r"[a-z_]{3,}", text[:200_000].lower()) if word not in common)
    ranked = sorted(range(len(sentences)), key=lambda at: (-_score_sentence(sentences[at], at, weights), at))
    chosen: list[int] = []
    room = limit
    for at in ranked:
        recurs = _score_sentence(sentences[at], at, weights) > 0
        if recurs and len(sentences[at]) + 1 <= room:
            chosen.append(at)
            room -= len(sentences[at]) + 1
    if not chosen and limit > 1:
        return f"{sentences[0][: limit - 1]}…" if sentences else ""
    return "\n".join(sentences[at] for at in sorted(chosen))


def _score_sentence(sentence: str, at: int, weights: "Counter[str]") -> float:
    """Return the share of words that recur elsewhere; the first sentence counts more."""
    words = re.findall(r"[a-z_]{3,}", sentence.lower())
    recurring = sum(weights[word] for word in words if weights[word] > 1)
    return recurring / (len(words) + 4) + (2.0 if at == 0 else 0.0)


def parse_edit_review(text: str) -> EditReview:
    """Parse the input of an edit review: JSON, or a prompt that spells it out."""
    try:
        return msgspec.json.decode(text, type=EditReview)
    except (msgspec.DecodeError, UnicodeError):
        pass
    old = re.search(r"Replace:\s*\"(.*?)\"\s*\n[-*\s]*With:", text, re.DOTALL)
    new = re.search(r"With:\s*\"(.*?)\"\s*(?:\n|$)", text, re.DOTALL)
    path = re.search(r"\*{0,2}File\*{0,2}:\s*(\S+)", text)
    body = re.search(r"Cached Content\*{0,2}:\s*\n(.*?)(?:\n\*\*Your Task|\Z)", text, re.DOTALL)
    content = body[1] if body else text
    return EditReview(
        file_path=path[1] if path else "",
        edits=(PlannedEdit(old[1] if old else "", new[1] if new else ""),),
        cached_content=content,
        is_partial=bool(re.search(r"^\W*Lines \d+-\d+", content, re.MULTILINE)),
    )


def judge_edit(review: EditReview) -> Sufficiency:
    """Return sufficient if each text to replace was seen, and only once unless all its places are meant.

    Line endings are ignored, as in the edit itself.
    """
    parts: list[tuple[int, str]] = [
        (first, _normalize_line_ends(text)) for first, text in split_line_headers(review.cached_content)
    ]
    places_seen: list[str] = []
    for edit in review.edits:
        old, new = _normalize_line_ends(edit.old_string), _normalize_line_ends(edit.new_string)
        if not old:
            return Sufficiency(False, "The text to replace is empty or was not given.")
        places = [first + text.count("\n", 0, at.start()) for first, text in parts for at in _find_all(old, text)]
        if not places:
            return _report_not_seen(review, parts)
        if len(places) > 1 and not edit.replace_all:
            return Sufficiency(
                False, f"The text to replace was seen {len(places)} times; more context must tell which is meant."
            )
        places_seen.append(f"on line {places[0]}" if len(places) == 1 else f"in {len(places)} places")
        parts = [(first, text.replace(old, new)) for first, text in parts]
    return Sufficiency(True, f"Found the text to replace {', '.join(places_seen)}.")


def _normalize_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _find_all(wanted: str, text: str) -> "Iterator[re.Match[str]]":
    return re.finditer(re.escape(wanted), text)


def _report_not_seen(review: EditReview, parts: list[tuple[int, str]]) -> Sufficiency:
    if not review.is_partial:
        return Sufficiency(False, "The file was seen whole and does not contain the text to replace.")
    end = review.total_lines or max(first + text.count("\n") for first, text in parts) + 200
    wider = LineRange(1, end, "The text to replace was not in the lines that were seen.")
    return Sufficiency(False, "The text to replace is not in the lines that were seen.", (wider,))


def _fill_schema(schema: dict[str, Any], text: str) -> Any:
    """Return the simplest value of a schema: titles and summaries for text, nothing invented elsewhere."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if "enum" in schema:
        return schema["enum"][0] if schema["enum"] else None
    if kind == "object":
        properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
        required = schema.get("required", list(properties))
        return {name: _fill_property(name, inner, text) for name, inner in properties.items() if name in required}
    plain: dict[str, Any] = {"array": [], "boolean": False, "integer": 0, "number": 0, "null": None}
    return plain[kind] if kind in plain else make_offline_summary(text, 400)


def _fill_property(name: str, schema: dict[str, Any], text: str) -> Any:
    return make_offline_title(text) if name == "title" else _fill_schema(schema, text)
