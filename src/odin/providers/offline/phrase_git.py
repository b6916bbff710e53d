"""Questions about the history and the state of the work: status, changes, diff, log, author, branch."""

import re

from odin.providers.offline.quotes import Request
from odin.providers.offline.task import LAST_FILE, Task
from odin.providers.offline.vocabulary import PLACE, looks_like_path

_TRIGGERS = (
    "git diff commit branch status changed change changes modified uncommitted untracked clean history log author wrote "
    "edited touched modify edit touch write staged"
).split()
_SHOW = r"(?:(?:show|give|print|display|list|see|get|view)(?: me)?(?: the| a| all| my| our)?(?: current| latest)? |what(?:'s| is| are)(?: the| my)?(?: current)? |the |my |current )?"
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
_FILE = rf"(?:the )?(?:file )?(?P<path>{PLACE})"


def git(clause: str, words: Request) -> Task | None:
    low = clause.lower()
    if not any(trigger in low for trigger in _TRIGGERS):
        return None
    if low.startswith("git "):
        return _typed(words.typed(clause))
    return _status(clause, words) or _log(clause, words) or _who(clause, words) or _branch(clause)


def _typed(command: str) -> Task:
    """A git command as one would type it in a shell."""
    plain = {"git status": "status", "git diff": "diff", "git branch": "branches", "git changes": "changes"}
    how = plain.get(command.lower().strip())
    if how:
        return Task("git", how=how)
    if command.lower().strip() in ("git log", "git history"):
        return Task("git", how="log", first=10)
    return Task("git", how="typed", command=command)


def _status(clause: str, words: Request) -> Task | None:
    if re.fullmatch(
        rf"{_SHOW}(?:git |repo(?:sitory)? |working tree |work tree )?status(?: of (?:the |this )?(?:repo|repository|project))?"
        r"|is (?:the |my )?(?:working tree|work tree|repo|repository|working copy|working directory|tree) (?:clean|dirty)"
        r"|(?:are there|do i have|is there|have i) (?:any )?(?:uncommitted|unstaged|staged|untracked|pending|local)"
        r"(?: changes?| files?| work| modifications?)?",
        clause,
        re.IGNORECASE,
    ):
        return Task("git", how="status")
    found = re.fullmatch(
        r"(?:what|which files?)(?: has| have| did| was| were| are| is)?(?: i| we| you| been| just)*(?: recently)? (?:changed?|modified|modify|edit(?:ed)?)"
        rf"(?: (?:here|recently|so far|in (?:git|(?:this|the) (?:repo|repository|project))|since (?:the )?last commit|in {_FILE}))?"
        rf"|{_SHOW}(?:(?:uncommitted|unstaged|local|recent|pending|git|working tree) )?(?:changes|modifications|changed files|modified files)(?: (?:in|to|of) (?P<of>{PLACE}))?",
        clause,
        re.IGNORECASE,
    )
    if found:
        path = words.content(found["path"] or found["of"] or "")
        if path:
            return Task("git", how="diff", path=_pronoun(path))
        return Task("git", how="changes")
    found = re.fullmatch(
        rf"{_SHOW}(?:git )?(?:diff(?:erence|erences|s)?)(?: (?:of|for|in|to) (?:the )?(?P<path>{PLACE})(?: file)?| (?P<bare>{PLACE}))?",
        clause,
        re.IGNORECASE,
    )
    if found:
        return Task("git", how="diff", path=_pronoun(words.content(found["path"] or found["bare"] or "")))
    return None


def _pronoun(path: str) -> str:
    return LAST_FILE if path.lower() in ("it", "that", "this", "that file", "this file") else path


def _log(clause: str, words: Request) -> Task | None:
    if re.fullmatch(
        r"how many commits(?: (?:are there|do we have|does (?:this|the) (?:repo|project|repository) have).*)?",
        clause,
        re.I,
    ):
        return Task("git", how="count")
    found = re.fullmatch(
        rf"{_SHOW}(?:the )?(?:last|latest|recent|previous|past|newest|most recent)?\s*(?P<n>\d+|{'|'.join(_NUMBERS)})?\s*(?:git )?commits?(?: messages?)?"
        rf"(?: (?:to|of|for|in|on|touching) {_FILE})?",
        clause,
        re.IGNORECASE,
    )
    if found:
        count = _number(found["n"]) or (10 if "commits" in clause.lower() else 1)
        return Task("git", how="log", first=count, path=_pronoun(words.content(found["path"] or "")))
    found = re.fullmatch(
        rf"{_SHOW}(?:git |commit |change )?(?:log|history)(?: (?:of|for) {_FILE})?", clause, re.IGNORECASE
    )
    if found:
        path = words.content(found["path"] or "")
        return Task("git", how="log", first=10, path="" if path in ("git", "repo", "project") else _pronoun(path))
    found = re.fullmatch(rf"{_SHOW}commit (?P<rev>[0-9a-f]{{4,40}}|HEAD[~^0-9]*)", clause, re.IGNORECASE)
    if found:
        return Task("git", how="show", term=found["rev"])
    if re.fullmatch(
        r"what (?:was|is|did)(?: there)? in the (?:last|latest) commit(?: change| do)?", clause, re.IGNORECASE
    ):
        return Task("git", how="show", term="HEAD")
    return None


def _number(word: str | None) -> int:
    if not word:
        return 0
    return min(_NUMBERS.get(word.lower()) or int(word[:6]), 200)


def _who(clause: str, words: Request) -> Task | None:
    deed = r"(?:changed?|modified|modify|edit(?:ed)?|touch(?:ed)?|wrote|write|updated?|committed)"
    found = re.fullmatch(
        rf"who (?:was the )?(?:last )?{deed}(?: to)? {_FILE}(?: last| most recently| recently)?"
        rf"|who (?:is|was) the (?:last )?(?:author|person to {deed}) (?:of )?(?:the )?(?P<of>{PLACE})"
        rf"|when (?:was|did) (?:the )?(?:file )?(?P<when>{PLACE})(?: was)?(?: last)? {deed}(?: last)?",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    path = words.content(found["path"] or found["of"] or found["when"])
    return Task("git", how="who", path=_pronoun(path))


def _branch(clause: str) -> Task | None:
    if "branch" not in clause.lower():
        return None
    if re.fullmatch(
        r"(?:what|which)(?: git)? branch(?: (?:am i|are we|is this|is it|is checked out|is current)(?: (?:on|in|at))?(?: now)?)?"
        r"|(?:what is|what's|show(?: me)?|print|name)(?: the| my| our)?(?: current| active)?(?: git)? branch(?: name)?|current branch",
        clause,
        re.IGNORECASE,
    ):
        return Task("git", how="branch")
    if re.fullmatch(
        rf"{_SHOW}(?:git |local )?branches|(?:what|which) branches (?:are there|exist|do we have|do i have)",
        clause,
        re.IGNORECASE,
    ):
        return Task("git", how="branches")
    return None
