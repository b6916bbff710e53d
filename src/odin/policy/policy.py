"""May this call run? One question, one answer with its reason and the rule it came from.

Each call is judged from the top; the first line that applies decides:

 1. built in: what would take the machine, a home or the project with it; pipes, devices and NUL bytes: never
 2. a rule of any layer that denies (`ForbiddenCommands` and `disallowed_tools` among them): no
 3. the mode: in ask and plan nothing is changed: no
 4. `restrict_to_workspace`: what lies outside the project: no
 5. where rules deny commands, one that cannot be read for certain, and where they deny files, one that opens whole
    folders, unless a rule allows exactly it; and one that is too long to be looked through: ask
 6. `--yes` and bypassPermissions: yes
 7. the rules that ask and allow; in ask and plan mode no rule lets a command run: ask or yes
 8. protected files, and files that hold secrets: ask
 9. the default: looking at the project is free, everything else is asked

A deny beats an ask, an ask beats an allow. What would be asked is refused under dontAsk. Nothing after line 1 can
overrule it, neither rule nor hook nor person.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from odin.core.event import Mode
from odin.core.path_names import contains
from odin.core.policy import RuleAction
from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.call import PolicyCall
from odin.policy.commands.analysis import (
    analyze_command,
    find_critical_harm,
    find_danger,
    find_outside_word,
    is_too_long_to_scan,
)
from odin.policy.modes import PLAN, PermissionMode, permission_mode_of, spec_of
from odin.policy.rules.rule import Rule, RuleSet, explain_sensitivity, rule_of
from odin.policy.rules.rule_file import build_list_rules
from odin.policy.rules.ruling import ResultFilter, find_deciding_rule, find_exact_rule, is_allowed_by, is_folder_search
from odin.policy.rules.suggestion import list_candidates


class Verdict(Struct, frozen=True):
    """`reason` says why in one sentence; `hint` how a person without a terminal could allow it.

    `rule` is the rule that decided, with its layer, or the name of the built-in one. What is `builtin` holds whatever
    a rule, a hook or a person says.
    """

    action: RuleAction
    reason: str = ""
    hint: str = ""
    rule: str = ""
    builtin: bool = False


_YES_HINT = "Allow it with --yes."
_EDIT_MODE_HINT = "Use edit mode (--mode edit) for that."

_LOG_SUFFIX = ".jsonl"


class Policy:
    """The rules of one session. A changed permission mode is a new policy with the same rulebook."""

    def __init__(
        self,
        *,
        root: str,
        cwd: str = "",
        permission_mode: str = "default",
        yes: bool = False,
        restrict_to_workspace: bool = False,
        rule_set: RuleSet | None = None,
        readable: str = "",
        allowed_tools: Iterable[str] = (),
        disallowed_tools: Iterable[str] = (),
        allowed_commands: Iterable[str] = (),
        forbidden_commands: Iterable[str] = (),
    ) -> None:
        """Without a rulebook, the four lists make one.

        `readable` is a folder whose files may be read like the project's: there the session keeps what no longer fits
        the conversation. Its log is not meant: it also has what was kept from the model.
        """
        self.root = paths.resolve_path(root, "/") or root
        self.cwd = paths.resolve_path(cwd or root, "/") or self.root
        self.permission_mode: PermissionMode = permission_mode_of(permission_mode)
        self.yes = yes
        self.rule_set = rule_set or RuleSet(
            build_list_rules(
                allowed_tools=allowed_tools,
                disallowed_tools=disallowed_tools,
                allowed_commands=allowed_commands,
                forbidden_commands=forbidden_commands,
            )
        )
        self._restricted = restrict_to_workspace
        self._readable = paths.resolve_path(readable, "/") or readable if readable else ""

    def with_permission_mode(self, mode: str) -> "Policy":
        """The same rules under another permission mode."""
        return self._with(permission_mode=permission_mode_of(mode))

    def _with(self, **changed: Any) -> "Policy":
        other = object.__new__(Policy)
        other.__dict__.update(self.__dict__, **changed)
        return other

    def judge(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> Verdict:
        return self._judge(self._make_call(name, kind, subject, mode))

    def suggest_rules(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> tuple[str, ...]:
        """Rules that would let the same call run, the narrowest first; none where no rule may answer."""
        call = self._make_call(name, kind, subject, mode)
        if self._judge(call).action != "ask" or (call.kind != "read" and self._find_sensitive_path(call)):
            return ()
        return tuple(text for text in dict.fromkeys(list_candidates(call)) if self._would_allow(text, call))

    def would_decide(self, text: str, action: RuleAction, name: str, kind: Kind, subject: Subject, mode: Mode) -> bool:
        """Whether a rule somebody wrote would decide this call. Raises UsageError when it may not be added."""
        call = self._make_call(name, kind, subject, mode)
        rule = self.rule_set.check(text, action)
        return self._would_allow(text, call) if action == "allow" else rule.matches_call(call)

    def make_result_filter(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> ResultFilter:
        """Which files an admitted search must not show."""
        free = self.yes or self.permission_mode == "bypassPermissions"
        call = self._make_call(name, kind, subject, mode)
        return ResultFilter(call, self.rule_set.deny_rules, self.rule_set.ask_allow_rules, bypass=free)

    def _would_allow(self, text: str, call: PolicyCall) -> bool:
        book = self.rule_set.with_rule(rule_of(text))
        return self._with(rule_set=book)._judge(call).action == "allow"

    def _make_call(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> PolicyCall:
        spec = PLAN if self.permission_mode == "plan" else spec_of(mode)
        seen = analyze_command(subject.command) if subject.command else None
        return PolicyCall(name, kind, subject, spec, seen, self.root, self.cwd)

    def _judge(self, call: PolicyCall) -> Verdict:
        verdict = (
            self._check_builtin(call)
            or self._check_denials(call)
            or self._check_mode(call)
            or self._check_workspace(call)
        )
        if verdict is not None:
            return verdict
        doubt = self._check_uncertainty(call)
        if doubt is not None:
            return self._apply_dont_ask(doubt)
        if self.yes or self.permission_mode == "bypassPermissions":
            how = "--yes" if self.yes else "the permission mode bypassPermissions"
            return Verdict("allow", f"Nothing is asked with {how}.", rule=how)
        return self._apply_dont_ask(
            self._check_rules(call) or self._check_protected(call) or self._decide_default(call)
        )

    def _apply_dont_ask(self, verdict: Verdict) -> Verdict:
        if verdict.action != "ask" or self.permission_mode != "dontAsk":
            return verdict
        return replace(
            verdict,
            action="deny",
            reason=f"{verdict.reason} The permission mode dontAsk refuses what would be asked.",
        )

    # --- what never runs ---

    def _check_builtin(self, call: PolicyCall) -> Verdict | None:
        if call.analysis is not None:
            why = find_critical_harm(call.command, call.analysis, self.root, self.cwd)
            if why:
                hint = "Name exactly what is meant, or do it by hand."
                return _deny_always(f"This command never runs: {why}.", "commands that never run", hint)
        for path in call.subject.paths if call.kind in ("read", "edit") else ():
            if "\0" in path:
                return _deny_always(f"{path!r} contains a NUL byte, so it is no path.", "no path")
            if paths.is_special_file(path, self.cwd):
                return _deny_always(f"{path} is a pipe, a socket or a device, not a file.", "special files")
            if call.kind == "edit" and contains(paths.resolve_path(path, self.cwd) or "/", self.root):
                return _deny_always(f"{path} is the project folder or one above it, not a file in it.", "folders")
        return None

    def _check_denials(self, call: PolicyCall) -> Verdict | None:
        for rule in self.rule_set.deny_rules:
            if not rule.matches_call(call) or (rule.exceptions and is_allowed_by(call, rule.exceptions)):
                continue
            hint = f"Remove it from {rule.source} to allow it." if rule.source else "Remove it to allow it."
            return Verdict("deny", f"The rule {rule.text!r} denies it.", hint, rule.label)
        return None

    def _check_uncertainty(self, call: PolicyCall) -> Verdict | None:
        """What may come upon something that a rule denies is asked about even under a bypass."""
        if call.analysis is None:
            return None
        if is_too_long_to_scan(call.command, call.analysis):
            why = "The command is too long to be read or looked through, so anything may hide in it."
            return Verdict("ask", why, "Write it into a file and run that.", "overlong commands")
        doubt = self._check_unreadable(call) if not call.analysis.is_complete else self._check_folder_search(call)
        exact = find_exact_rule(call, self.rule_set.ask_allow_rules) if doubt is not None else None
        return None if exact is not None and exact.action == "allow" else doubt

    def _check_unreadable(self, call: PolicyCall) -> Verdict | None:
        """Where commands are denied, one that cannot be read for certain."""
        rule = next(
            (rule for rule in self.rule_set.deny_rules if not rule.bare and _is_about_commands(rule, call)), None
        )
        if rule is None:
            return None
        why = "It cannot be told for certain that this command runs nothing that is forbidden."
        return Verdict("ask", why, "Write it as plain commands.", rule.label)

    def _check_folder_search(self, call: PolicyCall) -> Verdict | None:
        """Where files are denied to readers, a command that opens every file of a folder."""
        rule = next((rule for rule in self.rule_set.deny_rules if rule.tool == "Read" and not rule.bare), None)
        if rule is None or call.analysis is None or not any(is_folder_search(part) for part in call.analysis.commands):
            return None
        why = f"It opens every file below a folder, and the rule {rule.text!r} denies some."
        return Verdict("ask", why, "Use Grep, which leaves them out.", rule.label)

    # --- the mode and the workspace ---

    def _check_mode(self, call: PolicyCall) -> Verdict | None:
        spec = call.spec
        name = f"{spec.short_name} mode"
        if not spec.allows_kind(call.kind):
            why = f"{call.name} changes files, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, _EDIT_MODE_HINT, name)
        if call.kind == "execute" and not spec.allows_changes and call.analysis is not None and call.analysis.writes:
            target = call.analysis.writes[0].target.text
            why = f"The command writes to {target!r} by redirection, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, _EDIT_MODE_HINT, name)
        return None

    def _check_workspace(self, call: PolicyCall) -> Verdict | None:
        outside = self._find_outside_path(call) if self._restricted else ""
        if not outside:
            return None
        why = f"{outside} is outside the project {self.root}, and restrict_to_workspace is on."
        hint = "Switch restrict_to_workspace off in your user file to be asked instead."
        return Verdict("deny", why, hint, "restrict_to_workspace")

    def _find_outside_path(self, call: PolicyCall) -> str:
        """The first path of the call that leaves the project, or ""."""
        if call.analysis is not None:
            return find_outside_word(call.analysis, self.cwd, self.root)
        return next((path for path in call.subject.paths if not self._is_within(path, call.kind)), "")

    def _is_within(self, path: str, kind: Kind) -> bool:
        if paths.is_inside(path, self.root, self.cwd):
            return True
        found = paths.resolve_path(path, self.cwd) if kind == "read" and self._readable else None
        if found is None or found == self._readable or found.endswith(_LOG_SUFFIX):
            return False
        return contains(self._readable, found)

    # --- rules and defaults ---

    def _check_rules(self, call: PolicyCall) -> Verdict | None:
        """What the rules say. In ask and plan mode none of them lets a command run unasked."""
        rule = find_deciding_rule(call, self.rule_set.ask_allow_rules)
        if rule is None:
            return None
        if rule.action == "ask":
            return Verdict("ask", f"The rule {rule.text!r} wants it asked about.", self._suggest_hint(call), rule.label)
        if call.kind == "execute" and not call.spec.allows_changes:
            return None
        return Verdict("allow", f"The rule {rule.text!r} allows it.", rule=rule.label)

    def _find_sensitive_path(self, call: PolicyCall) -> str:
        return next((path for path in call.subject.paths if explain_sensitivity(path, call)), "")

    def _check_protected(self, call: PolicyCall) -> Verdict | None:
        path = self._find_sensitive_path(call)
        if not path:
            return None
        reads = call.kind == "read"
        name, hint = ("secret files", self._suggest_hint(call)) if reads else ("protected files", _YES_HINT)
        return Verdict("ask", f"{path} {explain_sensitivity(path, call)}.", hint, name)

    def _decide_default(self, call: PolicyCall) -> Verdict:
        if call.kind == "talk":
            return _allow_freely("It only talks to the person.", "talking")
        if call.kind == "network":
            why = f"{call.name} reaches the network: {call.subject.text}."
            return Verdict("ask", why, self._suggest_hint(call), "the network")
        if call.kind == "execute":
            return self._decide_command(call)
        outside = self._find_outside_path(call)
        if outside:
            why = f"{outside} is outside the project {self.root}."
            return Verdict("ask", why, self._suggest_hint(call), "outside the project")
        if call.kind == "read":
            return _allow_freely("It reads inside the project.", "reading the project")
        if self.permission_mode == "acceptEdits" and call.subject.paths:
            return _allow_freely("It changes files inside the project, and edits are accepted.", "acceptEdits")
        return Verdict(
            "ask", f"{call.name} changes {call.subject.text or 'files'}.", self._suggest_hint(call), "changes"
        )

    def _decide_command(self, call: PolicyCall) -> Verdict:
        seen = call.analysis
        if seen is None or not call.command.strip():
            return Verdict("ask", f"{call.name} runs a program.", self._suggest_hint(call), "programs")
        if call.is_read_only():
            return _allow_freely("It only looks at the project.", "commands that only look")
        outside = find_outside_word(seen, self.cwd, self.root)
        if outside:
            why = f"The command names {outside}, outside the project {self.root}."
            return Verdict("ask", why, self._suggest_hint(call), "outside the project")
        why = "The command may change things."
        danger = find_danger(seen, self.root, self.cwd)
        if danger:
            why = f"The command is dangerous: {danger}."
        elif not seen.is_complete:
            why = f"What the command runs cannot be told for certain: {seen.reason or 'it cannot be read'}."
        else:
            doubt = call.explain_doubt()
            if doubt:
                why = f"It is not certain that the command only looks: {doubt}."
            if not call.spec.allows_changes:
                why = f"In {call.spec.mode} only commands that are known to change nothing run without a question"
                why += f": {doubt}." if doubt else "."
        return Verdict("ask", why, self._suggest_hint(call), "commands")

    def _suggest_hint(self, call: PolicyCall) -> str:
        if call.kind == "edit" and not self._find_outside_path(call):
            return "Allow it with --permission-mode acceptEdits, or everything with --yes."
        if call.kind == "execute" and not call.spec.allows_changes:
            return "Allow it with --yes, or use --mode edit."
        text = next(list_candidates(call), "")
        return (
            f"Allow it with --allowedTools '{text}', or everything with --yes."
            if text and "'" not in text
            else _YES_HINT
        )


def _deny_always(reason: str, rule: str, hint: str = "") -> Verdict:
    return Verdict("deny", reason, hint, rule, builtin=True)


def _allow_freely(reason: str, rule: str) -> Verdict:
    return Verdict("allow", reason, rule=rule)


def _is_about_commands(rule: Rule, call: PolicyCall) -> bool:
    return rule.matches_tool(call.name) or rule.tool == "ExecuteCommand"
