"""Files that a search comes upon and must not show.

A search is judged by the folder it is given. What it finds there is looked at once more: a file that a rule denies or
wants asked about, or in which people keep secrets, is shown only when it is named itself, so that it is judged itself.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from odin.core.tool import Subject
from odin.policy.call import Call
from odin.policy.command.survey import Part
from odin.policy.confidential import confidential
from odin.policy.rule.rule import Rule, sensitive
from odin.policy.rule.ruling import allowed_by, ruling

_NAMES_ONLY = ("Glob",)
_SEARCHES = ("rg", "ag", "ack")
_RECURSIVE = ("grep", "egrep", "fgrep", "diff")


class KeptBack:
    """Tells of each file below the folder of an admitted search whether it stays out of the results.

    `search` is the call as it was judged. With `free` nothing is asked about, so only denials count; likewise where
    no more than names are listed. Questions that the search itself has raised were answered by whoever admitted it.
    """

    def __init__(self, search: Call, denials: Iterable[Rule], speaking: Iterable[Rule], *, free: bool) -> None:
        free = free or search.name in _NAMES_ONLY
        self._search = search
        self._denials = tuple(rule for rule in denials if not rule.bare or rule.spared)
        self._speaking = () if free else tuple(rule for rule in speaking if not _was_asked(rule, search))
        self._asks = any(rule.action == "ask" for rule in self._speaking)
        self._secrets = not free and not any(sensitive(path, search) for path in search.subject.paths)

    def __call__(self, path: str) -> bool:
        secret = self._secrets and confidential(path)
        if not (self._denials or self._asks or secret):
            return False
        found = replace(self._search, subject=Subject(paths=(path,)), known={})
        if any(rule.touches(found) and not allowed_by(found, rule.spared) for rule in self._denials):
            return True
        rule = ruling(found, self._speaking)
        return secret if rule is None else rule.action == "ask"


def opens_folders(part: Part) -> bool:
    """Whether a command opens every file below a folder, so that it may come upon one that nobody named."""
    options = [text for text in part.texts[1:] if text.startswith("-")]
    if part.name in _SEARCHES or (part.name == "git" and "grep" in part.texts[1:]):
        return True
    return part.name in _RECURSIVE and any(re.match(r"-\w*[rRd]|--(dereference-)?recurs", text) for text in options)


def _was_asked(rule: Rule, search: Call) -> bool:
    return rule.action == "ask" and rule.touches(search)
