"""Splits a prompt into clauses, removes polite words, and turns each clause into a task."""

import re

from msgspec.structs import replace

from odin.providers.offline.action_phrases import match_change, match_git, match_invention, match_run, match_talk
from odin.providers.offline.language import QUOTED, QuotedRequest, is_path_like, protect_quotes
from odin.providers.offline.read_phrases import match_files, match_folders, match_read, match_search
from odin.providers.offline.task import PlannerTask

MAX_CLAUSES = 12

_VERBS = (
    "search|find|grep|look|locate|list|ls|show|read|open|cat|view|print|display|head|tail|replace|rename|change|substitute|"
    "correct|create|make|write|save|append|add|delete|remove|run|rerun|execute|outline|summari[sz]e|describe|count|undo|"
    "revert|git|tell|give|explain|fix|implement|refactor|update|commit|move|touch|overwrite|put|mark|clear|"
    "what|which|where|who|how|do the same|the same"
)
_POLITE_WORDS = (
    r"(?:please|pls|plz|kindly|hey|hi|hello|ok(?:ay)?|well|so|now|then|also|and|but|after that|afterwards|just|quickly|"
    r"odin|(?:can|could|would|will) (?:you|we|i)(?: please)?|let'?s|let us|i(?:'d| would) like (?:you )?to|"
    r"i (?:want|need) (?:you )?to|we (?:want|need) to|you should|go ahead and|help me(?: to)?|try to|"
    r"tell me(?= (?:what|which|where|who|how|if|whether))|do you know(?= (?:what|which|where|who|how)))"
)
_ORDER_WORDS = rf"(?:first|second|third|next|last|final)(?:ly)?(?:,|(?= (?:please )?(?:{_VERBS})\b))"
_THANKS = (
    r"(?:please|for me|thanks|thank you|thx|right now|will you|would you|could you|if you can|too|as well|again|"
    r"once more)"
)


def split_clauses(text: str) -> list[str]:
    """Return the clauses of a protected request in order, without polite words; at most a dozen."""
    found: list[str] = []
    for line in _split_lines(text):
        for clause in _split_parts(strip_courtesy(line)):
            tidy = strip_courtesy(clause)
            if tidy:
                found.append(tidy)
    return found[:MAX_CLAUSES]


def strip_courtesy(clause: str) -> str:
    """Return the clause without greetings, please, thanks and final punctuation, unless nothing else is left."""
    text = re.sub(r"\s+", " ", clause).strip()
    for _ in range(8):
        shorter = re.sub(
            rf"^(?:{_POLITE_WORDS}\b[,:!]?|{_ORDER_WORDS})\s+(?=\S)", "", text, count=1, flags=re.IGNORECASE
        )
        shorter = re.sub(rf"(?<=\S)[,]?\s+{_THANKS}\s*[.!?]*$", "", shorter, count=1, flags=re.IGNORECASE)
        shorter = re.sub(r"(?<=[^\s.!?])(?:\s*[!?]+|\.)[\s.!?]*$|[,;:]+$", "", shorter)
        if shorter == text:
            break
        text = shorter
    return text


def _split_lines(text: str) -> list[str]:
    """Split a request by lines. A line that is only a quoted text belongs to the line before it."""
    lines: list[str] = []
    for raw in text.splitlines():
        line = re.sub(r"^\s*(?:\d{1,3}[.)]|[-*•])\s+", "", raw).strip()
        if lines and re.fullmatch(QUOTED, line):
            lines[-1] = f"{lines[-1]} {line}"
        elif line:
            lines.append(line)
    if (
        len(lines) > 1
        and lines[0].endswith(":")
        and re.search(r"\b(?:following|steps?|things?|these|this)\b", lines[0])
    ):
        del lines[0]
    return lines


def _split_parts(line: str) -> list[str]:
    if re.match(r"\W*(?:please )?(?:(?:add|create|new)(?: an?)?(?: new)? )?todo(?: item)?\s*:", line, re.IGNORECASE):
        return [line]
    verb = rf"(?:{_VERBS})\b"
    polite = r"(?:please |also |now |finally |just )?"
    cuts = (
        r"\s*;\s+"
        r"|(?<=[\w/)\ue001])[.!?]\s+(?=[A-Za-z])"
        rf"|,?\s+(?:and\s+)?(?:then|afterwards|after that|finally)[,\s]\s*(?=\S)"
        rf"|,?\s+(?:and|&)\s+(?={polite}{verb})"
        rf"|,\s+(?={polite}{verb})"
    )
    parts = [part for part in re.split(cuts, line, flags=re.IGNORECASE) if part and part.strip()]
    if len(parts) > 1 and re.fullmatch(r"(?:in|inside|within) \S+", parts[0].strip(), re.IGNORECASE):
        parts[:2] = [f"{parts[0]}, {parts[1]}"]
    return [piece for part in parts for piece in _split_path_list(part)]


def _split_path_list(part: str) -> list[str]:
    """Split "read a.py, b.py and c.py" into three requests."""
    pieces = re.split(r"(,?\s+(?:and|&)\s+|,\s+)", part)
    out = [pieces[0]]
    for cut, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        words = piece.split(maxsplit=1)
        if out[-1].strip() and words and is_path_like(words[0].rstrip(".,?!")) and _ends_in_path(out[-1]):
            out.append(piece)
        else:
            out[-1] += cut + piece
    return out


def _ends_in_path(text: str) -> bool:
    return is_path_like(text.split()[-1])


MAX_PROMPT = 200_000
MAX_WORDS = 2_000
"""Beyond this many characters outside quotes a prompt is prose, not a simple request."""

_MAX_TERM_WORDS = 4
"""A search for "read and write" is one request; a search for many words was split wrongly."""

_MATCHERS = (match_talk, match_git, match_run, match_change, match_folders, match_read, match_files, match_search)


def parse_prompt(prompt: str) -> list[PlannerTask]:
    """Return the tasks of a prompt in order. Unknown clauses become tasks of kind "unknown" or "invent"."""
    words = protect_quotes(prompt[:MAX_PROMPT])
    text = _expand_contractions(words.text)
    if len(text) > MAX_WORDS:
        return [PlannerTask("unknown", source_text=prompt[:200])]
    if re.fullmatch(r"\W*(?:hi|hello|hey)(?: there| odin| all)?\W*", text, re.IGNORECASE):
        return [PlannerTask("help", variant="hello")]
    words = QuotedRequest(text, words.quoted)
    tasks = [_parse_clause(clause, words) for clause in split_clauses(text)]
    if not tasks:
        return [PlannerTask("help", variant="hello")]
    if len(tasks) > 1 and any(_is_lost(task) for task in tasks):
        whole = _parse_clause(strip_courtesy(text), words)
        if not _is_lost(whole) and len(whole.term.split()) <= _MAX_TERM_WORDS:
            return [whole]
    return _keep_known_start(tasks)


def _expand_contractions(text: str) -> str:
    text = re.sub(r"(?<=\w)’(?=\w)", "'", text)
    return re.sub(r"\b(what|where|who|how|that|it|there|here)'s\b", r"\1 is", text, flags=re.IGNORECASE)


def _parse_clause(clause: str, words: QuotedRequest) -> PlannerTask:
    for family in _MATCHERS:
        task = family(clause, words)
        if task is not None:
            return task if task.source_text else replace(task, source_text=words.restore_quotes(clause))
    return replace(match_invention(clause, words) or PlannerTask("unknown"), source_text=words.restore_quotes(clause))


def _is_lost(task: PlannerTask) -> bool:
    return task.kind in ("unknown", "invent")


def _keep_known_start(tasks: list[PlannerTask]) -> list[PlannerTask]:
    """Keep the tasks before the first unknown clause: the later ones may depend on it."""
    for index, task in enumerate(tasks):
        if _is_lost(task):
            return tasks[: index + 1]
    return tasks
