"""Files that a search comes upon and must not show.

A search is judged by the folder it is given. What it finds there is looked at once more: a file that a rule denies or
wants asked about, or in which people keep secrets, is shown only when it is named itself, so that it is judged itself.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from odin.core.tool import Subject
from odin.policy.call import PolicyCall
from odin.policy.command.survey import ExtractedCommand
from odin.policy.confidential import is_secret_path
from odin.policy.rule.rule import Rule, explain_sensitivity
from odin.policy.rule.ruling import find_deciding_rule, is_allowed_by

_NAME_TOOLS = ("Glob",)
_SEARCH_PROGRAMS = ("rg", "ag", "ack")
_RECURSIVE_PROGRAMS = ("grep", "egrep", "fgrep", "diff")


class ResultFilter:
    """Tells of each file below the folder of an admitted search whether it stays out of the results.

    `search` is the call as it was judged. With `free` nothing is asked about, so only denials count; likewise where
    no more than names are listed. Questions that the search itself has raised were answered by whoever admitted it.
    """

    def __init__(
        self, search: PolicyCall, deny_rules: Iterable[Rule], ask_allow_rules: Iterable[Rule], *, bypass: bool
    ) -> None:
        bypass = bypass or search.name in _NAME_TOOLS
        self._search = search
        self._deny_rules = tuple(rule for rule in deny_rules if not rule.bare or rule.exceptions)
        self._ask_allow_rules = (
            () if bypass else tuple(rule for rule in ask_allow_rules if not _was_asked(rule, search))
        )
        self._has_ask_rules = any(rule.action == "ask" for rule in self._ask_allow_rules)
        self._hide_secrets = not bypass and not any(explain_sensitivity(path, search) for path in search.subject.paths)

    def __call__(self, path: str) -> bool:
        secret = self._hide_secrets and is_secret_path(path)
        if not (self._deny_rules or self._has_ask_rules or secret):
            return False
        found = replace(self._search, subject=Subject(paths=(path,)), cache={})
        if any(rule.matches_call(found) and not is_allowed_by(found, rule.exceptions) for rule in self._deny_rules):
            return True
        rule = find_deciding_rule(found, self._ask_allow_rules)
        return secret if rule is None else rule.action == "ask"


def is_folder_search(part: ExtractedCommand) -> bool:
    """Whether a command opens every file below a folder, so that it may come upon one that nobody named."""
    options = [text for text in part.texts[1:] if text.startswith("-")]
    if part.name in _SEARCH_PROGRAMS or (part.name == "git" and "grep" in part.texts[1:]):
        return True
    return part.name in _RECURSIVE_PROGRAMS and any(
        re.match(r"-\w*[rRd]|--(dereference-)?recurs", text) for text in options
    )


def _was_asked(rule: Rule, search: PolicyCall) -> bool:
    return rule.action == "ask" and rule.matches_call(search)
