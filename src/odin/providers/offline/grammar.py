"""From words to tasks: what a prompt asks for, clause by clause."""

import re

from msgspec.structs import replace

from odin.providers.offline.clauses import clauses, courtesy_off
from odin.providers.offline.phrase_change import change, invention
from odin.providers.offline.phrase_find import files, folders
from odin.providers.offline.phrase_git import git
from odin.providers.offline.phrase_read import read
from odin.providers.offline.phrase_run import run
from odin.providers.offline.phrase_search import search
from odin.providers.offline.phrase_talk import talk
from odin.providers.offline.quotes import Request, protect
from odin.providers.offline.task import Task

MAX_PROMPT = 200_000
MAX_WORDS = 2_000
"""Beyond this many characters outside quotes a prompt is prose, not a plain request."""

_SHORT_TERM = 4
"""A search for "read and write" is one request; a search for many words is two that were cut wrongly."""

_FAMILIES = (talk, git, run, change, folders, read, files, search)


def understand(prompt: str) -> list[Task]:
    """The tasks of a prompt, in order. What is not understood is a task of kind "unknown" or "invent"."""
    words = protect(prompt[:MAX_PROMPT])
    text = _without_contractions(words.text)
    if len(text) > MAX_WORDS:
        return [Task("unknown", said=prompt[:200])]
    if re.fullmatch(r"\W*(?:hi|hello|hey)(?: there| odin| all)?\W*", text, re.IGNORECASE):
        return [Task("help", how="hello")]
    words = Request(text, words.quoted)
    tasks = [_clause(clause, words) for clause in clauses(text)]
    if not tasks:
        return [Task("help", how="hello")]
    if len(tasks) > 1 and any(_lost(task) for task in tasks):
        whole = _clause(courtesy_off(text), words)
        if not _lost(whole) and len(whole.term.split()) <= _SHORT_TERM:
            return [whole]
    return _known_start(tasks)


def _without_contractions(text: str) -> str:
    text = re.sub(r"(?<=\w)’(?=\w)", "'", text)
    return re.sub(r"\b(what|where|who|how|that|it|there|here)'s\b", r"\1 is", text, flags=re.IGNORECASE)


def _clause(clause: str, words: Request) -> Task:
    for family in _FAMILIES:
        task = family(clause, words)
        if task is not None:
            return task if task.said else replace(task, said=words.typed(clause))
    return replace(invention(clause, words) or Task("unknown"), said=words.typed(clause))


def _lost(task: Task) -> bool:
    return task.kind in ("unknown", "invent")


def _known_start(tasks: list[Task]) -> list[Task]:
    """Do what comes before the first clause that is not understood, and nothing after it: it may depend on it."""
    for index, task in enumerate(tasks):
        if _lost(task):
            return tasks[: index + 1]
    return tasks
