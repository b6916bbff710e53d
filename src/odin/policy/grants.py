"""What approving a command grants it in the sandbox: the paths outside the project that it names, and the network.

Only paths that the command may change count, and only if they are written out, so that the permission request can name
them. Not granted are secret and protected files and what a deny rule may match.
"""

import os
import re
from collections.abc import Iterator, Sequence

from odin.core.path_names import contains, is_secret_path
from odin.core.profile import NO_GRANTS, SandboxGrants
from odin.policy import paths
from odin.policy.command_scope import CommandScope
from odin.policy.commands.analysis import find_path_forms
from odin.policy.commands.short_list import read_call
from odin.policy.commands.syntax import CommandAnalysis, ShellWord, split_names
from odin.policy.danger import is_using_network
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.pattern import resolve_pattern
from odin.policy.rules.rule import Rule
from odin.sandbox.layout import can_grant, drop_inner_paths, is_temporary

_MAX_PATHS = 5
_HOME_PREFIX = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/)")
_WILDCARD = re.compile(r"[*?\[{]")
_REMOVERS = split_names("rm rmdir unlink shred mv")
_PATH_TOOLS = ("Read", "EditTool", "WriteFile", "AppendFile", "MultiEditTool", "apply_patch", "Delete")


def find_grants(call: PolicyCall, deny_rules: Sequence[Rule]) -> SandboxGrants:
    """Return what the sandbox lets this command do if the user approves it."""
    analysis = call.analysis
    if analysis is None or analysis.script is None or not call.spec.allows_changes:
        return NO_GRANTS
    environment = call.scope.environment
    home = os.path.realpath(environment.home)
    found = [
        path
        for path in dict.fromkeys(_find_outside_paths(analysis, call))
        if can_grant(path, home, call.scope.folders)
        and not is_temporary(path, environment.variables, home, call.scope.folders)
    ]
    found = [path for path in drop_inner_paths(found) if not _is_guarded(path, call, deny_rules)]
    removes = any(part.name in _REMOVERS for part in analysis.commands)
    return SandboxGrants(tuple(found[:_MAX_PATHS]), is_using_network(call), removes=removes and bool(found))


def _find_outside_paths(analysis: CommandAnalysis, call: PolicyCall) -> Iterator[str]:
    """Yield the resolved paths outside the project that the command names and may change."""
    home = call.scope.environment.home
    for word, folder in _find_changed_words(analysis, call):
        text = word.text if word.quoted else _HOME_PREFIX.sub(lambda _: home, word.text, count=1)
        if "$" in text or "`" in text or word.glob:
            continue
        for form in find_path_forms(text):
            path = paths.resolve_path(form, folder)
            if not path or form.startswith(("-", "~")) or paths.is_stream(form) or call.scope.find_root(path):
                continue
            yield path


def _find_changed_words(analysis: CommandAnalysis, call: PolicyCall) -> Iterator[tuple[ShellWord, str]]:
    """Yield each word of the commands that are not known to only read, with the folder it is relative to."""
    script = analysis.script
    for simple in script.commands if script else ():
        folder = _resolve_folder(simple.folder, call.cwd)
        if folder:
            yield from ((item.target, folder) for item in simple.redirects if not item.op.startswith("<"))
            yield from _list_words(simple.words, folder)
    for part in analysis.commands:
        folder = _resolve_folder(part.folder, call.cwd)
        if part.is_inner and folder:
            yield from _list_words(part.words, folder)


def _list_words(words: Sequence[ShellWord], folder: str) -> Iterator[tuple[ShellWord, str]]:
    """Yield the arguments, unless the program is on the short list. `cd` is not: commands after it may change files."""
    name = words[0].text if words else ""
    if read_call([ShellWord(word.text) for word in words]) is None:
        yield from ((word, folder) for word in words[0 if "=" in name else 1 :])


def _resolve_folder(folder: str | None, cwd: str) -> str:
    """Return the folder that a command runs in, or "" if it is not known."""
    return "" if folder is None or folder.startswith("~") else paths.resolve_path(folder, cwd) or ""


def _is_guarded(path: str, call: PolicyCall, deny_rules: Sequence[Rule]) -> bool:
    """True for a secret or protected path, and if a deny rule may match it or something below it."""
    if is_secret_path(path) or call.scope.find_protected_part(path):
        return True
    return any(_may_deny_below(rule, path, call.scope) for rule in deny_rules if rule.tool in _PATH_TOOLS)


def _may_deny_below(rule: Rule, path: str, scope: CommandScope) -> bool:
    if rule.bare or rule.everything:
        return True
    head = _WILDCARD.split(resolve_pattern(rule.pattern, scope, rule.root), maxsplit=1)[0].casefold()
    return contains(path.casefold(), head.rstrip("/")) or path.casefold().startswith(head)
