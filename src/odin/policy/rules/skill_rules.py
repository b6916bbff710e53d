"""What the `allowed-tools` of a skill allow.

They count like allow rules that the user wrote, with three limits. None may allow everything: a rule names its tool
exactly, and a rule for commands names the program. None allows a destructive command or, unless it names the host, a
page of this machine or a private network. They are the weakest rules of all (see `policy`).

A relative path in a command that names a file of the skill means that file, however the command spells it: the
project's file of the same name is another one.

Imported only if a skill brings rules.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from odin.core.call_events import SkillUsed
from odin.core.errors import UsageError
from odin.core.path_names import contains
from odin.policy.commands.programs import INTERPRETERS, SHELLS
from odin.policy.danger import is_hard_to_undo
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.evaluation import find_deciding_rule
from odin.policy.rules.pattern import CommandPattern, has_wildcard, is_host_named
from odin.policy.rules.rule import Rule, find_objection, parse_rule

_COMMAND_TOOLS = ("ExecuteCommand", "Spawn")
_FOLDER = re.compile(r"\$\{(?:CLAUDE|ODIN)_SKILL_DIR\}")


def collect_skill_rules(used: Iterable[SkillUsed]) -> tuple[Rule, ...]:
    """Return the allow rules that these skills bring."""
    return tuple(rule for event in used for rule in parse_skill_rules(event.rules, os.path.dirname(event.path)))  # noqa: PTH120


def parse_skill_rules(texts: Iterable[str], folder: str) -> Iterator[Rule]:
    """Yield the rules of a skill in this folder that have an effect; `odin skills check` reports the others."""
    home = os.path.realpath(folder)
    for text in texts:
        if explain_no_effect(text):
            continue
        with suppress(UsageError):
            yield from _locate_files(parse_rule(_insert_folder(text, home), source="a skill"), home)


def list_effective_rules(texts: Iterable[str]) -> tuple[str, ...]:
    """Return those of a skill's `allowed-tools` that allow something."""
    return tuple(text for text in texts if not explain_no_effect(text))


def explain_no_effect(text: str) -> str:
    """Return why one of a skill's `allowed-tools` allows nothing, as a sentence, or ""."""
    try:
        rule = parse_rule(text)
    except UsageError as error:
        return error.describe()
    if has_wildcard(rule.tool) or (rule.tool.startswith("mcp__") and rule.tool.count("__") == 1):
        return "A skill must name each tool exactly, such as Read or mcp__github__get_issue."
    program = rule.command.words[0] if rule.command.words else ""
    if rule.tool in _COMMAND_TOOLS and (not program or has_wildcard(program)):
        return "A skill must name the program, such as Bash(git log:*)."
    return find_objection(rule)


def find_skill_rule(call: PolicyCall, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule of a skill that allows a call, or None. It allows no private address that it does not name."""
    if call.is_private_fetch():
        rules = [rule for rule in rules if is_host_named(rule.pattern, call.target.url)]
    rule = find_deciding_rule(call, rules)
    return None if rule is None or is_hard_to_undo(call) else rule


def _insert_folder(text: str, home: str) -> str:
    """Return a rule with the skill's folder instead of `${CLAUDE_SKILL_DIR}`, quoted in a command."""
    if has_wildcard(home) or not _FOLDER.search(text):
        return text
    place = shlex.quote(home) if parse_rule(text).tool in _COMMAND_TOOLS else home
    return _FOLDER.sub(lambda _: place, text)


def _locate_files(rule: Rule, home: str) -> Iterator[Rule]:
    """Yield a rule with the words that name files of the skill as absolute paths.

    A word without a slash may also be meant as it is: `git add README.md`. After an interpreter it is a script.
    """
    words = rule.command.words
    if rule.tool not in _COMMAND_TOOLS or has_wildcard(home):
        yield rule
        return
    located = tuple(_locate_word(word, home, is_program=not at) for at, word in enumerate(words))
    # Which word is the program or, after an interpreter or a shell, its script.
    name = located[0].rsplit("/", 1)[-1]
    if not INTERPRETERS.fullmatch(name) and name not in SHELLS:
        script = 0
    else:
        script = next((at for at, word in enumerate(located) if at and not word.startswith("-")), 0)
    if located != words:
        runs_own = located[script] != words[script] or contains(home, words[script])
        named = (old for old, new in zip(words, located, strict=True) if old != new)
        command = CommandPattern(located, rule.command.is_prefix)
        if not runs_own and not any("/" in word for word in named):
            yield rule
        yield replace(rule, pattern=shlex.join(located), command=command, home=home if runs_own else "")
    else:
        yield replace(rule, home=home) if contains(home, words[script]) else rule


def _locate_word(word: str, home: str, *, is_program: bool) -> str:
    """Return the absolute path of the skill's file that a word names, else the word itself."""
    if has_wildcard(word) or word.startswith(("-", "/", "~", "$")) or "\0" in word or (is_program and "/" not in word):
        return word
    path = os.path.realpath(f"{home}/{word}")
    return path if contains(home, path) and os.path.isfile(path) else word  # noqa: PTH113
