"""What the rules that ask and allow say about one call.

Every part of a call is looked at by itself: each command, each path. For each the first rule of the strongest layer
that says something decides. One part that is to be asked about makes the whole a question; only when every part is
allowed is the whole allowed. A rule that is the whole command, letter for letter, is looked at first.
"""

import re
from collections.abc import Iterable, Sequence

from odin.policy import paths
from odin.policy.call import Call, spellings
from odin.policy.command.harmless import harmless_redirect
from odin.policy.command.reach import leaves, outside_word
from odin.policy.command.shapes import Word
from odin.policy.confidential import confidential
from odin.policy.rule.escape import escapes
from odin.policy.rule.rule import Rule
from odin.policy.shell import Part, Survey, risky

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def exact_ruling(call: Call, rules: Sequence[Rule]) -> Rule | None:
    """The rule that is this very command."""
    return next((rule for rule in rules if call.command and rule.is_exactly(call)), None)


def ruling(call: Call, rules: Sequence[Rule]) -> Rule | None:
    """The rule that decides, from rules that ask or allow with the strongest first; None when none does."""
    if not rules:
        return None
    if call.seen is not None:
        return exact_ruling(call, rules) or _commands(call, call.seen, rules)
    if call.subject.paths:
        return _all(_path(path, call, rules) for path in call.subject.paths)
    for rule in rules:
        if rule.action == "ask" and rule.touches(call):
            return rule
        if rule.action == "allow" and (rule.covers_url(call) if call.subject.url else rule.covers_all(call)):
            return rule
    return None


def _all(found: Iterable[Rule | None]) -> Rule | None:
    """One that asks, or the last one when all parts are allowed."""
    rulings = list(found)
    asking = next((rule for rule in rulings if rule is not None and rule.action == "ask"), None)
    if asking is not None or not rulings or None in rulings:
        return asking
    return rulings[-1]


def _path(path: str, call: Call, rules: Sequence[Rule]) -> Rule | None:
    one = _only(call, path)
    for rule in rules:
        if rule.touches(one) if rule.action == "ask" else rule.covers_path(path, call):
            return rule
    return None


def _only(call: Call, path: str) -> Call:
    if len(call.subject.paths) == 1:
        return call
    from msgspec.structs import replace

    return replace(call, subject=replace(call.subject, paths=(path,)))


# --- commands ---


def _commands(call: Call, seen: Survey, rules: Sequence[Rule]) -> Rule | None:
    asking = _asking(call, seen, rules)
    if asking is not None:
        return asking
    allowing = [rule for rule in rules if rule.action == "allow" and rule.names(call.name)]
    general = next((rule for rule in allowing if rule.bare), None)
    if general is not None and _nothing_special(call, seen):
        return general
    return _every_step(call, seen, [rule for rule in allowing if not rule.bare])


def _asking(call: Call, seen: Survey, rules: Sequence[Rule]) -> Rule | None:
    """A rule that wants one of the commands asked about, and that no stronger one overrules for that command."""
    if not any(rule.action == "ask" for rule in rules):
        return None
    for part in seen.parts:
        found = _for_part(part, call, rules)
        if found is not None and found.action == "ask":
            return found
    for rule in rules:
        if rule.action == "ask" and (rule.tool in ("Read", "EditTool") or not seen.sure) and rule.touches(call):
            return rule
    return None


def _for_part(part: Part, call: Call, rules: Sequence[Rule]) -> Rule | None:
    for rule in rules:
        if rule.action == "ask":
            if rule.touches_part(part, call):
                return rule
        elif rule.names(call.name) and (rule.bare or rule.command.rest(part.words) is not None):
            return rule
    return None


def _nothing_special(call: Call, seen: Survey) -> bool:
    """Whether a command is one that `Bash` alone stands for: readable, and about this project's ordinary files."""
    if not seen.sure or outside_word(seen, call.cwd, call.root) or risky(seen, call.root, call.cwd):
        return False
    if any(value is None or leaves(value, call.cwd, call.root) for _, value in seen.assigned):
        return False
    words = [*(word for part in seen.parts for word in part.words), *(item.target for item in seen.redirects)]
    if not all(_written_out(word.text, seen) for word in words if word.expands):
        return False
    return not any(_sensitive(form, "/", call.root) for form in call.forms())


def _written_out(text: str, seen: Survey) -> bool:
    """Whether a word that the shell changes holds no more than variables whose values stand in the same text."""
    known = {name for name, _ in seen.assigned}
    left = _VARIABLE.sub(lambda found: "" if (found[1] or found[2]) in known else found[0], text)
    return not set(left) & set("$`")


def _every_step(call: Call, seen: Survey, rules: Sequence[Rule]) -> Rule | None:
    """Each command is harmless, or is what a rule says and then names nothing outside or protected."""
    if not rules or not seen.sure:
        return None
    last: Rule | None = None
    passed: list[tuple[tuple[Word, ...], int]] = []
    for simple, folder in call.steps():
        if call.harmless(simple, folder):
            passed.append((simple.words, 0))
            continue
        if not all(harmless_redirect(item) for item in simple.redirects):
            return None
        last = _covering(simple.words, folder, call, rules)
        if last is None:
            return None
        passed.append((simple.words, len(last.command.words)))
    inner = [part for part in seen.parts if part.found_inside]
    return last if all(_inner_passes(part, passed, call, rules) for part in inner) else None


def _covering(words: tuple[Word, ...], folder: str, call: Call, rules: Sequence[Rule]) -> Rule | None:
    for rule in rules:
        rest = rule.command.rest(words)
        if rest is None:
            continue
        texts = [word.text for word in rest]
        if escapes([word.text for word in words], texts):
            continue
        named = [form for word in rest for form in spellings(word)]
        if not any(leaves(text, folder, call.root) or _sensitive(text, folder, call.root) for text in (*texts, *named)):
            return rule
    return None


def _inner_passes(
    part: Part, passed: Sequence[tuple[tuple[Word, ...], int]], call: Call, rules: Sequence[Rule]
) -> bool:
    """A command inside another passes when the other's rule names it as well, or a rule of its own allows it."""
    size = len(part.words)
    for words, named in passed:
        if words[-size:] == part.words and (not named or named > len(words) - size):
            return True
    return _covering(part.words, call.cwd, call, rules) is not None


def _sensitive(text: str, folder: str, root: str) -> bool:
    return confidential(text) or bool(paths.protected(text, root, folder))


def allowed_by(call: Call, rules: Sequence[Rule]) -> bool:
    """Whether these rules, which only allow, mean every part of the call."""
    parts = call.seen.parts if call.seen is not None else ()
    named = [rule for rule in rules if rule.names(call.name)]
    meant = all(any(rule.bare or rule.command.rest(part.words) is not None for rule in named) for part in parts)
    return meant and ruling(call, rules) is not None
