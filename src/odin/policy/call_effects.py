"""What a tool call would do, in a sentence or a few, and how dangerous that is: for permission requests.

A call that does several things gets the danger of the worst, and a sentence for each that does more than change files.
"""

import os
from collections.abc import Iterator, Sequence

from odin.core.path_names import is_secret_path
from odin.core.policy import Danger
from odin.core.tool import canonical_name_of
from odin.policy import paths
from odin.policy.commands.analysis import find_danger, find_outside_word, is_step_read_only
from odin.policy.commands.effects import Effect, describe_program, list_names, shorten
from odin.policy.commands.programs import WRAPPERS, is_assignment
from odin.policy.commands.readonly.git import explain_distrust
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, SimpleCommand, split_names
from odin.policy.policy_call import PolicyCall

_WEAKEST_FIRST: tuple[Danger, ...] = (
    "harmless",
    "changes_files",
    "network",
    "outside_project",
    "hard_to_undo",
    "credentials",
)
_MAX_SENTENCES = 3
_ELEVATING = split_names("sudo doas su pkexec run0 runuser gosu su-exec")


def describe_call(call: PolicyCall) -> Effect:
    """Return what a call would do, and how dangerous the worst of it is."""
    if call.analysis is not None and call.command.strip():
        found = list(_describe_command(call.analysis, call.cwd, call.root))
        return _combine_effects(found) if found else Effect("changes_files", "Sets variables or runs nothing.")
    if call.kind == "network":
        return Effect("network", f"Fetches {shorten(call.subject.url)}." if call.subject.url else "Uses the network.")
    if call.kind == "talk":
        return Effect("harmless", "Talks to the user.")
    return _describe_files(call)


def _combine_effects(effects: Sequence[Effect]) -> Effect:
    """Return the worst danger, with the sentences of all effects that do more than change files, the worst first."""
    ranked = sorted(effects, key=lambda effect: -_WEAKEST_FIRST.index(effect.danger))
    worst = ranked[0]
    serious = [effect.sentence for effect in ranked if effect.danger not in ("harmless", "changes_files")]
    sentences = list(dict.fromkeys(serious)) or [worst.sentence]
    more = f" {len(sentences) - _MAX_SENTENCES} more." if len(sentences) > _MAX_SENTENCES else ""
    return Effect(worst.danger, " ".join(sentences[:_MAX_SENTENCES]) + more)


def _describe_files(call: PolicyCall) -> Effect:
    given = call.subject.paths
    reads = call.kind == "read"
    verb = "Reads" if reads else "Deletes" if canonical_name_of(call.name) == "Delete" else "Changes"
    outside = [path for path in given if not paths.is_inside(path, call.root, call.cwd)]
    secret = [path for path in given if is_secret_path(path)]
    if secret:
        return Effect("credentials", f"{verb} {list_names(secret)}, which may contain secrets.")
    if outside:
        return Effect("outside_project", f"{verb} {list_names(outside)}, outside the project.")
    names = list_names([_shorten_path(call.root, path) for path in given]) or "files"
    return Effect("harmless" if reads else "changes_files", f"{verb} {names}.")


def _shorten_path(root: str, path: str) -> str:
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else path


def _describe_command(analysis: CommandAnalysis, cwd: str, root: str) -> Iterator[Effect]:
    """Yield everything a command would do, in the order it is found."""
    yield from _describe_parts(analysis, cwd, root)
    for redirect in analysis.writes:
        verb = "Appends to" if ">>" in redirect.op else "Writes to"
        yield Effect("changes_files", f"{verb} {shorten(redirect.target.text)}.")
    words = [word for part in analysis.commands for word in part.words[1:] if not word.text.startswith("-")]
    for word in (*words, *(redirect.target for redirect in analysis.redirects)):
        if is_secret_path(word.text):
            yield Effect("credentials", f"Uses {shorten(word.text)}, which may contain secrets.")
    outside = find_outside_word(analysis, cwd, root)
    if outside:
        yield Effect("outside_project", f"Uses {shorten(outside)}, outside the project.")
    harm = find_danger(analysis, root, cwd).removeprefix("it ")
    if harm:
        yield Effect("hard_to_undo", f"{harm[0].upper()}{harm[1:]}.")
    if not analysis.is_complete:
        yield Effect("changes_files", "Runs commands that cannot be fully analyzed.")


def _describe_parts(analysis: CommandAnalysis, cwd: str, root: str) -> Iterator[Effect]:
    elevated = [part for part in analysis.commands if part.name in _ELEVATING]
    as_root = os.geteuid() == 0 or bool(elevated)
    is_root_named = False
    for part in analysis.commands:
        if part.name in _ELEVATING:
            continue
        if is_step_read_only(SimpleCommand(part.words), cwd, root):
            yield Effect("harmless", "Only reads.")
        elif part.name == "git" and (reason := explain_distrust(part.texts[1:], cwd, root)):
            reason = reason.replace(f"{root}/", "")
            yield Effect("changes_files", f"Runs git in a repository that is not trusted: {reason}.")
        elif part.name not in WRAPPERS or not _name_wrapped(part):
            effect = describe_program(part, as_root=as_root)
            is_root_named = is_root_named or effect.sentence.endswith(" as root.")
            yield effect
    for part in () if is_root_named else elevated:
        yield Effect("outside_project", f"Runs {_name_wrapped(part) or 'a shell'} as another user.")


def _name_wrapped(part: ExtractedCommand) -> str:
    """Return the first word of a wrapper that is neither an option nor an assignment, or ""."""
    words = (word for word in part.words[1:] if not word.text.startswith("-") and not is_assignment(word))
    return next((shorten(word.text) for word in words), "")
