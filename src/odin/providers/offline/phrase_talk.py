"""Greetings, help, the todo list, and follow-ups that make sense only with what came before."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.task import Task
from odin.providers.offline.vocabulary import PLACE, looks_like_path

_HELLO = frozenset("hi hello hey yo greetings hiya".split()) | {
    "good morning",
    "good evening",
    "good afternoon",
    "hi there",
}
_THANKS = frozenset(
    ["thanks", "thank you", "thx", "cheers", "great", "nice", "perfect", "ok", "okay", "cool", "good job"]
)
_HELP = frozenset(
    [
        "help",
        "?",
        "usage",
        "commands",
        "what can you do",
        "what do you do",
        "what are you able to do",
        "what can i do",
        "what can i ask",
        "who are you",
        "what are you",
        "how do you work",
        "how does this work",
        "what do you understand",
        "show help",
        "help me",
    ]
)
_AGAIN = frozenset(
    [
        "again",
        "once more",
        "repeat",
        "repeat that",
        "repeat it",
        "retry",
        "try",
        "do it",
        "do that",
        "rerun",
        "re-run",
        "rerun it",
        "rerun that",
        "run it",
        "run that",
        "run them",
        "do the same",
        "the same",
        "same",
        "one more time",
    ]
)
_MORE = frozenset(
    ["more", "show more", "continue", "go on", "read on", "keep reading", "next page", "next", "the rest"]
)
_UNDO = (
    r"(?:undo|revert|roll\s?back|take back)"
    r"(?: (?:it|that|this|everything|(?:the|my|your|that|this)? ?(?:last |latest |recent )?(?:changes?|edits?|replacements?|one)))?"
)


def talk(clause: str, words: Request) -> Task | None:
    low = clause.lower().strip(" ?!.")
    if low in _HELLO or not low:
        return Task("help", how="hello")
    if low in _HELP or re.match(
        r"are you (?:an? )?(?:ai|llm|model|bot|human|chatgpt|claude|gpt|person|language model)", low
    ):
        return Task("help")
    if low in _THANKS:
        return Task("help", how="thanks")
    if low in _AGAIN:
        return Task("again", how="run" if low.startswith(("run", "rerun", "re-run")) else "")
    if low in _MORE:
        return Task("more")
    if re.fullmatch(_UNDO, low):
        return Task("undo")
    return _todo(clause, words) or _same(clause, words)


def _same(clause: str, words: Request) -> Task | None:
    """ "do the same in b.py", "in tests", "what about FIXME", or a path by itself."""
    lead = r"(?:(?:do|try|repeat) (?:the same(?: thing)?|it|that|this) |(?:the )?same (?:thing )?|(?:what|how) about )"
    found = re.fullmatch(
        rf"(?P<lead>{lead})?(?:(?P<prep>in|for|on|within|under|to|with|inside) )?(?:the )?(?P<what>{PLACE})"
        r"(?: (?:folder|directory|file|dir))?",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    what = words.content(found["what"])
    if what.lower() == "everywhere" and (found["lead"] or not found["prep"]):
        return Task("again", everywhere=True)
    if looks_like_path(what) or (found["prep"] or "").lower() in ("in", "within", "under", "inside"):
        return Task("again", path=what)
    if found["lead"] or (found["prep"] or "").lower() == "for":
        return Task("again", term=what)
    return None


def _todo(clause: str, words: Request) -> Task | None:
    if "todo" not in clause.lower():
        return None
    found = re.fullmatch(
        r"(?:add|create|new|make|put)(?: (?:a|an|another|the))?(?: new)? todo(?: item)?(?:\s*:\s*|\s+)(?:to |for |that )?(?P<what>.+)"
        r"|todo\s*:\s*(?P<bare>.+)"
        r"|(?:add|put) (?P<listed>.+?) (?:to|on|onto) (?:the |my )?todos?(?: list)?",
        clause,
        re.IGNORECASE,
    )
    if found:
        what = found["what"] or found["bare"] or found["listed"]
        return Task("todo", how="add", new=words.content(what))
    if re.fullmatch(
        r"(?:show|list|see|print|what are|what is on|what's on)?(?: me)?(?: the| my)?(?: current)? ?todos?(?: list)?",
        clause,
    ) or (re.fullmatch(r"(?:show|list|see|print)(?: me)?(?: the| my) todo list", clause, re.IGNORECASE)):
        return Task("todo", how="show")
    found = re.fullmatch(
        rf"(?:mark|check|tick|set|finish|complete)(?: off)?(?: the)? todo (?:#|number )?(?P<which>\d+|{QUOTED})"
        r"(?: (?:as )?(?:done|completed|finished|off))?",
        clause,
        re.IGNORECASE,
    )
    if found:
        return Task("todo", how="done", term=words.content(found["which"]))
    return None
