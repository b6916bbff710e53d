"""Decides a call by the ask and allow rules, filters the results of allowed searches, and suggests rules.

Every part of a call (each command, each path) is decided on its own, by the first matching rule of the strongest layer.
One part that asks makes the whole call ask; the call is allowed only if every part is. A rule that is exactly the whole
command is tried first.

A search is decided by the folder it is given. Its results are filtered afterwards: a file that a rule denies or asks
about, or that may contain secrets, is shown only if the call names it.

A suggested rule is never broader than it looks: what would be refused as a rule is not offered, and a deletion is
offered only with its exact path.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains, is_secret_path
from odin.core.tool import ResolvedPath, Target, get_canonical_name
from odin.policy import paths
from odin.policy.command_scope import CommandScope
from odin.policy.commands.analysis import find_outside_word, find_removal_risk, is_outside_word
from odin.policy.commands.programs import FREE_RUNS, NAMED_RUNS, find_escape_option
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, SimpleCommand, split_names
from odin.policy.policy_call import PolicyCall, list_spellings
from odin.policy.rules.breadth import find_open_program
from odin.policy.rules.pattern import get_host, has_wildcard
from odin.policy.rules.rule import Rule, explain_sensitivity

_VARIABLE = compile_lazily(r"\$(?:(\w+)|\{(\w+)\})")


def find_exact_rule(call: PolicyCall, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule whose pattern is exactly this command, or None."""
    return next((rule for rule in rules if call.command and rule.is_exactly(call)), None)


def find_deciding_rule(call: PolicyCall, rules: Sequence[Rule]) -> Rule | None:
    """Return the deciding rule among ask and allow rules, strongest first, or None."""
    if not rules:
        return None
    if call.analysis is not None:
        return find_exact_rule(call, rules) or _decide_commands(call, call.analysis, rules)
    if call.target.paths:
        return _combine_rules(_decide_path(at, call, rules) for at in range(len(call.target.paths)))
    for rule in rules:
        if rule.action == "ask" and rule.matches_call(call):
            return rule
        if rule.action == "allow" and (rule.covers_url(call) if call.target.url else rule.covers_all(call)):
            return rule
    return None


def _combine_rules(parts: Iterable[Rule | None]) -> Rule | None:
    """Return a rule that asks, or the last one if all parts are allowed."""
    decided = list(parts)
    asking = next((rule for rule in decided if rule is not None and rule.action == "ask"), None)
    if asking is not None or not decided or None in decided:
        return asking
    return decided[-1]


def _decide_path(at: int, call: PolicyCall, rules: Sequence[Rule]) -> Rule | None:
    item = call.list_paths()[at]
    alone = call if len(call.target.paths) == 1 else _narrow_to_path(call, item)
    for rule in rules:
        if rule.matches_call(alone) if rule.action == "ask" else rule.covers_path(item, call):
            return rule
    return None


def _narrow_to_path(call: PolicyCall, item: ResolvedPath) -> PolicyCall:
    return replace(call, target=replace(call.target, paths=(item.written,), resolved=(item,)), cache={})


# --- commands ---


def _decide_commands(call: PolicyCall, analysis: CommandAnalysis, rules: Sequence[Rule]) -> Rule | None:
    asking = _find_asking_rule(call, analysis, rules)
    if asking is not None:
        return asking
    allowing = [rule for rule in rules if rule.action == "allow" and rule.is_about_tool(call)]
    general = next((rule for rule in allowing if rule.bare), None)
    if general is not None and _is_ordinary(call, analysis):
        # An ask rule, stronger than `general`, that the command may match once its unknown words are known.
        from odin.policy.rules.denial import find_possible_denial

        stronger = takewhile(lambda rule: rule is not general, rules)
        found = find_possible_denial(
            call, [rule for rule in stronger if rule.action == "ask" and not rule.matches_call(call)]
        )
        return (found.rule if found is not None else None) or general
    return _decide_steps(call, analysis, [rule for rule in allowing if not rule.bare])


def _find_asking_rule(call: PolicyCall, analysis: CommandAnalysis, rules: Sequence[Rule]) -> Rule | None:
    """Return an ask rule that matches one of the commands and is not overruled by a stronger one, or None."""
    if not any(rule.action == "ask" for rule in rules):
        return None
    for part in analysis.commands:
        deciding = _decide_part(part, call, rules)
        if deciding is not None and deciding.action == "ask":
            return deciding
    for rule in rules:
        if (
            rule.action == "ask"
            and (rule.tool in ("Read", "EditTool") or not analysis.is_complete)
            and rule.matches_call(call)
        ):
            return rule
    return None


def _decide_part(part: ExtractedCommand, call: PolicyCall, rules: Sequence[Rule]) -> Rule | None:
    for rule in rules:
        if rule.action == "ask":
            if rule.matches_part(part, call):
                return rule
        elif rule.is_about_tool(call) and (rule.bare or rule.command.match_words(part.words) is not None):
            return rule
    return None


def _is_ordinary(call: PolicyCall, analysis: CommandAnalysis) -> bool:
    """True if the bare rule `Bash` covers a command: it parses completely and touches only ordinary project files."""
    if not analysis.is_complete or find_outside_word(analysis, call.scope) or find_removal_risk(analysis, call.scope):
        return False
    roots = call.scope.folders
    if any(value is None or is_outside_word(value, call.cwd, *roots) for _, value in analysis.assigned):
        return False
    words = [
        *(word for part in analysis.commands for word in part.words),
        *(item.target for item in analysis.redirects),
    ]
    if not all(_is_literal_with_variables(word.text, analysis) for word in words if word.expands):
        return False
    return not find_sensitive_form(call)


def find_sensitive_form(call: PolicyCall) -> str:
    """Return the first path of a command that is protected or may contain secrets, or "".

    Installed programs count only if the command redirects its output to them.
    """
    writes = call.analysis.writes if call.analysis is not None else ()
    written = {redirect.target.text.rsplit("/", 1)[-1] for redirect in writes}
    for form in call.list_path_forms():
        if _is_sensitive(form, call.scope.enter("/")):
            return form
        if form.rsplit("/", 1)[-1] in written and call.scope.enter("/").find_protected_part(form):
            return form
    return ""


def _is_literal_with_variables(text: str, analysis: CommandAnalysis) -> bool:
    """True if every expansion in a word is a variable that is assigned in the same text."""
    known = {name for name, _ in analysis.assigned}
    rest = _VARIABLE.sub(lambda match: "" if (match[1] or match[2]) in known else match[0], text)
    return not set(rest) & set("$`")


def _decide_steps(call: PolicyCall, analysis: CommandAnalysis, rules: Sequence[Rule]) -> Rule | None:
    """Return the last rule used if each command is read-only or covered by a rule, else None."""
    if not rules or not analysis.is_complete:
        return None
    last: Rule | None = None
    allowed: list[tuple[tuple[ShellWord, ...], int]] = []
    homes = tuple(dict.fromkeys(rule.home for rule in rules if rule.home))
    for simple, folder in call.find_steps(homes):
        is_inside = bool(call.scope.find_root(folder))
        if (is_inside and call.is_step_read_only(simple, folder)) or _is_entering_home(simple, homes):
            allowed.append((simple.words, 0))
            continue
        if not all(item.is_read_only for item in simple.redirects):
            return None
        if simple.operator in ("|", "|&") and find_open_program([word.text for word in simple.words]):
            return None
        last = _find_covering_rule(simple.words, folder, call, rules)
        if last is None:
            return None
        allowed.append((simple.words, len(last.command.words)))
    inner = [part for part in analysis.commands if part.is_inner]
    return last if all(_is_inner_allowed(part, allowed, call, rules) for part in inner) else None


def _is_entering_home(simple: SimpleCommand, homes: Sequence[str]) -> bool:
    """True for a `cd` in a command that may enter the folder of a skill: its target is known to be there or inside."""
    return bool(homes and simple.words) and simple.words[0].text == "cd" and not simple.redirects


def _find_covering_rule(
    words: tuple[ShellWord, ...], folder: str, call: PolicyCall, rules: Sequence[Rule]
) -> Rule | None:
    for rule in rules:
        rest = rule.command.match_words(words, folder)
        if rest is None or not (call.scope.find_root(folder) or (rule.home and contains(rule.home, folder))):
            continue
        texts = [word.text for word in rest]
        if find_escape_option([word.text for word in words], texts):
            continue
        spellings = [form for word in rest for form in list_spellings(word)]
        if not any(_is_beyond(text, call.scope.enter(folder), rule.home) for text in (*texts, *spellings)):
            return rule
    return None


def _is_beyond(text: str, scope: CommandScope, home: str) -> bool:
    """True if a word may name a file that a rule does not cover: outside the project, protected, or with secrets."""
    if home and not is_outside_word(text, scope.cwd, home):
        return is_secret_path(text)
    return is_outside_word(text, scope.cwd, *scope.folders) or _is_sensitive(text, scope)


def _is_inner_allowed(
    part: ExtractedCommand,
    allowed: Sequence[tuple[tuple[ShellWord, ...], int]],
    call: PolicyCall,
    rules: Sequence[Rule],
) -> bool:
    """True if the rule for the outer command names this one, too, or if another rule allows it."""
    size = len(part.words)
    for words, named in allowed:
        if words[-size:] == part.words and (not named or named > len(words) - size):
            return True
    return _find_covering_rule(part.words, call.cwd, call, rules) is not None


def _is_sensitive(text: str, scope: CommandScope) -> bool:
    return is_secret_path(text) or bool(scope.find_protected_part(text, in_command=True))


def is_allowed_by(call: PolicyCall, rules: Sequence[Rule]) -> bool:
    """True if these allow rules cover every part of the call."""
    parts = call.analysis.commands if call.analysis is not None else ()
    tool_rules = [rule for rule in rules if rule.is_about_tool(call)]
    covered = all(
        any(rule.bare or rule.command.match_words(part.words) is not None for rule in tool_rules) for part in parts
    )
    return covered and find_deciding_rule(call, rules) is not None


_NAME_TOOLS = ("Glob",)


class ResultFilter:
    """Returns True for each file that must not appear in the results of an allowed search.

    With `bypass` only deny rules count; likewise for tools that only list names. Ask rules that the search itself
    matched do not count either: the user has already approved it.
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
        self._hide_secrets = not bypass and not any(explain_sensitivity(item, search) for item in search.list_paths())

    @property
    def is_idle(self) -> bool:
        """True if it hides nothing."""
        return not (self._deny_rules or self._has_ask_rules or self._hide_secrets)

    def __call__(self, path: str) -> bool:
        secret = self._hide_secrets and is_secret_path(path)
        if not (self._deny_rules or self._has_ask_rules or secret):
            return False
        call = replace(self._search, target=Target(paths=(path,)), cache={})
        if any(rule.matches_call(call) and not is_allowed_by(call, rule.exceptions) for rule in self._deny_rules):
            return True
        rule = find_deciding_rule(call, self._ask_allow_rules)
        return secret if rule is None else rule.action == "ask"


def _was_asked(rule: Rule, search: PolicyCall) -> bool:
    return rule.action == "ask" and rule.matches_call(search)


# --- suggestions for approval prompts ---

_MAX_RULE_CHARS = 200

_NEVER_PREFIX = split_names(
    "scp sftp rsync nc ncat socat telnet curl wget rm rmdir unlink shred mv cp dd ln tee install chmod chown chgrp "
    "truncate kill pkill killall source . alias trap systemctl service mkfs mount umount apt apt-get yum dnf brew "
    "pacman nano man open xdg-open"
)
"""Programs whose operands decide what is lost or sent. Only the exact command is offered."""

_RUNNERS: dict[str, tuple[str, ...]] = {
    "npm": ("run", "run-script", "exec"),
    "pnpm": ("run", "exec", "dlx"),
    "yarn": ("run", "exec", "dlx"),
    "bun": ("run", "x"),
    "uv": ("run", "tool"),
    "poetry": ("run",),
    "pipenv": ("run",),
    "hatch": ("run",),
    "pdm": ("run",),
    "bundle": ("exec",),
    "docker": ("compose",),
    "cargo": ("run",),
    "dotnet": ("run",),
    "deno": ("task",),
    "composer": ("run", "run-script"),
    "rails": ("db",),
    "nix": ("run",),
}
"""Programs with commands that run something else by its name: that name belongs to the rule."""

_MODULES = split_names("pytest unittest mypy ruff black isort flake8 pylint build doctest compileall tox nox coverage")
_NEVER_SUGGESTED = {"kubectl": split_names("delete"), "git": split_names("submodule bisect")}
_SINGLE_PURPOSE = split_names(
    "mkdir touch make pytest py.test tox nox mypy pyright basedpyright ruff black isort flake8 pylint tsc eslint "
    "prettier jest vitest mocha rspec rubocop phpunit gofmt golint golangci-lint rustfmt rustc gcc g++ clang "
    "cmake ninja ctest javac mvn gradle just rake shellcheck hadolint terraform-docs pre-commit"
)
"""Programs whose every call does the same kind of thing."""


def list_candidate_rules(call: PolicyCall) -> Iterator[str]:
    """Yield rules that may allow the call, narrowest first. `Policy` checks that they do."""
    if call.target.command:
        yield from _suggest_for_command(call)
    elif call.target.url:
        host = get_host(call.target.url)
        if host:
            yield f"{call.name}(domain:{host})"
    elif call.target.paths:
        yield from _suggest_for_path(call)
    elif name := call.target.name:
        if _is_presentable(name) and not has_wildcard(name):
            yield f"{call.name}({name})"
    elif get_canonical_name(call.name) != "Delete":
        yield call.name


def _suggest_for_command(call: PolicyCall) -> Iterator[str]:
    tool = "Bash" if get_canonical_name(call.name) == "ExecuteCommand" else call.name
    text = call.target.command.strip()
    if _is_presentable(text) and not has_wildcard(text):
        yield f"{tool}({text})"
    # The words of the only command that is not read-only, or nothing if there are several.
    if call.analysis is None or not call.analysis.is_complete:
        words = ()
    else:
        deciding = {simple.words for simple, folder in call.find_steps() if not call.is_step_read_only(simple, folder)}
        words = next(iter(deciding)) if len(deciding) == 1 else ()
    prefix = _find_prefix([word.text for word in words]) if words and all(word.literal for word in words) else ()
    if prefix and all(_is_presentable(word) and " " not in word for word in prefix):
        yield f"{tool}({' '.join(prefix)}:*)"


def _find_prefix(texts: Sequence[str]) -> Sequence[str]:
    """Return the leading words that describe the kind of command, or nothing if they would be too broad."""
    name = texts[0]
    if len(texts) > 2 and name in ("python", "python3") and texts[1] == "-m" and texts[2] in _MODULES:
        return texts[:3]
    if name in _NEVER_PREFIX or "/" in name or "=" in name:
        return ()
    if find_open_program([name]) and name not in NAMED_RUNS and not FREE_RUNS.get(name):
        return ()
    if name in _SINGLE_PURPOSE:
        return texts[:1]
    if len(texts) < 2 or not _is_word(texts[1]) or texts[1] in _NEVER_SUGGESTED.get(name, ()):
        return ()
    if texts[1] not in _RUNNERS.get(name, ()):
        return texts[:2] if NAMED_RUNS.get(name) != "" or texts[1] not in _NEVER_PREFIX else ()
    if len(texts) < 3 or not _is_word(texts[2]) or texts[2] in _NEVER_PREFIX:
        return ()
    return texts[:3]


def _is_word(text: str) -> bool:
    """True for a name such as `test` or `build:prod`, not for an option, file or value."""
    return text[:1].isalpha() and all(char.isalnum() or char in "-_:" for char in text)


def _suggest_for_path(call: PolicyCall) -> list[str]:
    if len(call.target.paths) != 1:
        return []
    item = call.list_paths()[0]
    path = item.path
    if item.fault or not _is_presentable(path) or set(path) & set("*?()"):
        return []
    inside = contains(call.root, path) and path != call.root
    shown = f"./{path[len(call.root.rstrip('/')) + 1 :]}" if inside else path
    tool = {"read": "Read", "edit": "Edit"}.get(call.kind, call.name)
    if call.is_removed(item):
        return [f"Delete({shown})"]
    exact = f"{tool}({shown.removeprefix('./') if shown.count('/') > 1 and inside else shown})"
    folder = (shown if paths.is_folder(path) else shown.rpartition("/")[0]).removeprefix("./")
    if folder in ("", ".") or (not call.scope.find_root(path) and (call.kind != "read" or folder.count("/") < 2)):
        return [exact]
    return [exact, f"{tool}({folder}/**)"]


def _is_presentable(text: str) -> bool:
    return bool(text) and len(text) <= _MAX_RULE_CHARS and text.isprintable()
