"""From words to tasks: what a prompt asks for, clause by clause."""

import re

from msgspec.structs import replace

from odin.providers.offline.clauses import split_clauses, strip_courtesy
from odin.providers.offline.phrase_change import match_change, match_invention
from odin.providers.offline.phrase_find import match_files, match_folders
from odin.providers.offline.phrase_git import match_git
from odin.providers.offline.phrase_read import match_read
from odin.providers.offline.phrase_run import match_run
from odin.providers.offline.phrase_search import match_search
from odin.providers.offline.phrase_talk import match_talk
from odin.providers.offline.quotes import QuotedRequest, protect_quotes
from odin.providers.offline.task import PlannerTask

MAX_PROMPT = 200_000
MAX_WORDS = 2_000
"""Beyond this many characters outside quotes a prompt is prose, not a plain request."""

_MAX_TERM_WORDS = 4
"""A search for "read and write" is one request; a search for many words is two that were cut wrongly."""

_MATCHERS = (match_talk, match_git, match_run, match_change, match_folders, match_read, match_files, match_search)


def parse_prompt(prompt: str) -> list[PlannerTask]:
    """The tasks of a prompt, in order. What is not understood is a task of kind "unknown" or "invent"."""
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
    """Do what comes before the first clause that is not understood, and nothing after it: it may depend on it."""
    for index, task in enumerate(tasks):
        if _is_lost(task):
            return tasks[: index + 1]
    return tasks
