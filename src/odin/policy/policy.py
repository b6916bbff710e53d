"""Decides whether a tool call may run.

Each call is checked in this order; the first check that applies decides, and the last one can make that stricter:

 1. built in: commands that destroy the machine, a home folder or the project, and paths to pipes, devices or with NUL
    bytes: deny. Nothing overrules this, neither a rule nor a hook nor the user.
 2. a deny rule of any layer (including `ForbiddenCommands` and `disallowed_tools`): deny
 3. the mode: in ask and plan mode, edit tools and, without a sandbox, commands that redirect output to files: deny
 4. read-only roots: changes there; `restrict_to_workspace`: paths outside the roots; the agent's write scope: changes
    outside it: deny
 5. a command that may do something a deny rule forbids (see `rules/denial`), unless an allow rule names exactly
    this command: ask, and deny under `--yes` and bypassPermissions
 6. `--yes` and bypassPermissions: allow, except a WebFetch of a private address that no allow rule names: deny
 7. the ask and allow rules; in ask and plan mode no rule allows a command
 8. protected files, and files that hold secrets: ask
 9. the rules of the skills that the turn uses (see `rules/skill_rules`): allow
10. the default: reading the roots and interactive tools are allowed, everything else asks, and so does writing
    for later sessions (Memory) in ask and plan mode. acceptEdits and auto also allow changes inside the project
11. the limits of a role or a type of sub-agent (`AgentLimits`): they deny or ask about what is allowed until here, and
    never allow more. Their ask rules do not count under `--yes` and bypassPermissions

Deny beats everything. Between ask and allow the strongest layer decides (see `RuleSet`); for a call with several paths,
one ask is enough. Under dontAsk, ask becomes deny.

A command is asked about before it runs only if it needs what the sandbox keeps it from (see `danger`), or if there is
no sandbox. Otherwise it runs in a view, and `Decision.after` says what happens to what it writes there. Without views
it runs where it can write nothing, or in the permission mode auto in the project if that is easy to undo.
Commands of the short list (`commands/short_list`) run at once, where they can write nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from odin.core.environment import ExecutionEnvironment
from odin.core.event_values import Mode
from odin.core.path_names import contains
from odin.core.policy import CommandsAsk, EffectsAction, RuleAction
from odin.core.profile import NO_GRANTS, CommandLevel, SandboxGrants
from odin.core.root import Root
from odin.core.tool import Kind, ResolvedPath, Target, get_canonical_name
from odin.core.write_scope import WriteScope
from odin.policy import paths
from odin.policy.command_scope import resolve_scope
from odin.policy.commands.analysis import (
    analyze_command,
    find_critical_harm,
    find_outside_word,
)
from odin.policy.commands.syntax import CommandAnalysis
from odin.policy.decision import READ_ONLY_RULE, Decision, RunsIn
from odin.policy.modes import ASK, PermissionMode, get_mode_spec, parse_permission_mode
from odin.policy.paths import keep_lookups
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.evaluation import (
    ResultFilter,
    find_deciding_rule,
    find_exact_rule,
    find_sensitive_form,
    is_allowed_by,
    list_candidate_rules,
)
from odin.policy.rules.rule import Rule, RuleSet, explain_sensitivity, find_objection, parse_rule
from odin.policy.write_scope import find_outside_redirect

if TYPE_CHECKING:
    from odin.core.call_events import SkillUsed
    from odin.core.server_tool import ServerTool
    from odin.policy.danger import Confinement, Effect


class AgentLimits(Struct, frozen=True):
    """The restrictions that a role or a type of sub-agent adds to those of the session.

    `owner` names it in a sentence: `The role x`. `rule_set` are its own rules. `permission_mode` is the most permissive
    of default, acceptEdits and auto that it may use; `dontAsk` always applies. With `read_only` calls are checked as in
    ask mode.
    """

    owner: str
    rule_set: RuleSet
    has_tool: "Callable[[str, ServerTool | None], bool]" = lambda name, server_tool: True
    permission_mode: str = ""
    read_only: bool = False


_LIMITED_MODES: tuple[PermissionMode, ...] = ("default", "acceptEdits", "auto")
"""Strictest first."""

_YES_HINT = "Allow it with --yes."
_FAULT_HINT = "List the folder with LS, then name the file itself."
_SPECIAL_FILE_HINT = (
    "Use a command that ends by itself instead, such as `timeout 5 head -c 4096 FILE`; it needs approval."
)
_EDIT_MODE_HINT = "Use edit mode (--mode edit) for that."

_LOG_SUFFIX = ".jsonl"

_WIDER_MODES: tuple[PermissionMode, ...] = ("acceptEdits", "auto")
"""The permission modes that a request offers. None of them allows everything."""


class Policy:
    """Checks the tool calls of one session, or of one agent of it.

    A changed permission mode makes a new policy that shares the rule set, and so does the write scope of an agent.
    """

    write_scope = WriteScope()
    is_worktree = False
    """The root is an agent's worktree: changes in it reach the project only by Apply, which is checked like an edit."""

    def __init__(
        self,
        *,
        root: str,
        environment: ExecutionEnvironment,
        roots: Sequence[Root] = (),
        permission_mode: str = "default",
        yes: bool = False,
        restrict_to_workspace: bool = False,
        rule_set: RuleSet | None = None,
        readable: Sequence[str] = (),
        confinement: "Confinement | None" = None,
        commands_ask: CommandsAsk = "effects",
        read_secrets: Sequence[str] = (),
    ) -> None:
        """`environment` is the one in which the session runs commands. `roots` are the folders besides the project that
        it works in. `readable` are folders whose files may be read
        like the project's: the session stores large outputs in one. `commands_ask` is when the user is asked about
        commands, and `read_secrets` are the secret files of the project that commands may read unasked.

        Session logs (`.jsonl`) in them stay closed, because they contain text that was hidden from the model.
        """
        self.scope = resolve_scope(environment.cwd, root, environment, tuple(roots))
        self.permission_mode: PermissionMode = parse_permission_mode(permission_mode)
        self.yes = yes
        self.rule_set = rule_set or RuleSet()
        self._limits: tuple[AgentLimits, ...] = ()
        self._restricted = restrict_to_workspace
        self._confinement = confinement
        self._commands_ask = commands_ask
        self._read_secrets = frozenset(paths.resolve_path(path, self.root) or path for path in read_secrets)
        self._readable = tuple(paths.resolve_path(folder, "/") or folder for folder in readable)
        self._skill_rules: tuple[Rule, ...] = ()

    @property
    def root(self) -> str:
        return self.scope.root

    @property
    def cwd(self) -> str:
        return self.scope.cwd

    def with_permission_mode(self, mode: str) -> "Policy":
        """Return a policy with the same rules under another permission mode, as far as its limits permit."""
        allowed = parse_permission_mode(mode)
        for limits in self._limits:
            if limits.permission_mode == "dontAsk":
                allowed = "dontAsk"
            elif limits.permission_mode in _LIMITED_MODES and allowed in _LIMITED_MODES:
                limit = parse_permission_mode(limits.permission_mode)
                allowed = allowed if _LIMITED_MODES.index(allowed) <= _LIMITED_MODES.index(limit) else limit
        return self._with(permission_mode=allowed)

    def restrict(self, limits: AgentLimits) -> "Policy":
        """Return a policy that allows what this one and these limits allow."""
        return self._with(_limits=(*self._limits, limits)).with_permission_mode(self.permission_mode)

    def with_root(
        self,
        root: str,
        environment: ExecutionEnvironment,
        confinement: "Confinement | None",
        *,
        is_worktree: bool = False,
    ) -> "Policy":
        """Return a policy with the same rules for an agent that works in another folder, such as a worktree of the
        project, or runs commands in another environment.

        What it changes in a worktree reaches the project only by Apply, so there the other roots are read-only.
        """
        roots = tuple(replace(other, access="read") for other in self.scope.roots) if is_worktree else self.scope.roots
        scope = resolve_scope(environment.cwd, root, environment, roots)
        return self._with(scope=scope, _confinement=confinement, is_worktree=is_worktree)

    def with_roots(self, roots: Sequence[Root]) -> "Policy":
        """Return a policy with the same rules for a session that works in these folders besides the project."""
        return self._with(scope=replace(self.scope, roots=tuple(roots)))

    def with_write_scope(self, scope: WriteScope) -> "Policy":
        """Return a policy with the same rules for an agent that may change only the files of the scope."""
        return self._with(write_scope=scope)

    def with_skills(self, used: "Iterable[SkillUsed]") -> "Policy":
        """Return a policy with what skills in use allow. Other rules, protected files and the mode are stronger."""
        from odin.policy.rules.skill_rules import collect_skill_rules

        return self._with(_skill_rules=collect_skill_rules(used))

    def _with(self, **changed: Any) -> "Policy":
        other = object.__new__(Policy)
        other.__dict__.update(self.__dict__, **changed)
        return other

    def resolve(self, target: Target) -> Target:
        """Return the target with its paths resolved. Check this one, and let the tool act on the same paths."""
        found = paths.resolve_target(target, self.cwd, self.scope.environment.home)
        return replace(found, resolved=tuple(map(self._find_temporary_file, found.resolved)))

    def _find_temporary_file(self, item: ResolvedPath) -> ResolvedPath:
        """Return the file that commands see under a path of a temporary folder, if they made or changed it."""
        if self._confinement is None or item.is_private or not self.scope.is_temporary(item.path):
            return item
        private = self._confinement.find_temporary_file(item.path)
        return replace(item, path=private, target=private, is_private=True) if private else item

    def may_read_secret(self, path: str) -> bool:
        """True if commands that nobody approved may read this resolved secret file: a rule lets the model read it, or
        `commands.read_secrets` names it."""
        if path in self._read_secrets:
            return True
        return self.evaluate("Read", "read", Target(paths=(path,)), "ask_mode").action == "allow"

    async def examine(self) -> None:
        """Find out how commands are confined, before calls are evaluated."""
        if self._confinement is not None:
            await self._confinement.examine()

    def find_level(self, command: str = "") -> CommandLevel:
        """Return how a command would be confined; without a command, how commands in general are."""
        return "none" if self._confinement is None else self._confinement.find_level(command)

    @keep_lookups
    def evaluate(self, name: str, kind: Kind, target: Target, mode: Mode) -> Decision:
        return self._evaluate(self._make_call(name, kind, target, mode))

    @keep_lookups
    def describe_effect(self, name: str, kind: Kind, target: Target, mode: Mode) -> "Effect":
        """Return what this call would do, and how dangerous that is."""
        from odin.policy.danger import describe_call

        return describe_call(self._make_call(name, kind, target, mode))

    @keep_lookups
    def name_call(self, name: str, kind: Kind, target: Target, mode: Mode) -> str:
        """Return this call in a few words, for a permission request."""
        from odin.policy.danger import name_call

        call = self._make_call(name, kind, target, mode)
        is_apart = self.is_worktree and kind == "edit" and not self._find_outside_path(call)
        return f"{name_call(call)} in its worktree" if is_apart else name_call(call)

    @keep_lookups
    def find_grants(self, name: str, kind: Kind, target: Target, mode: Mode) -> SandboxGrants:
        """Return what the sandbox lets this command do if the user approves it."""
        if kind != "execute":
            return NO_GRANTS
        from odin.policy.grants import find_grants

        grants = find_grants(self._make_call(name, kind, target, mode), self._list_deny_rules())
        return replace(grants, paths=(), removes=False) if self.write_scope.is_limited else grants

    @keep_lookups
    def suggest_modes(self, name: str, kind: Kind, target: Target, mode: Mode) -> tuple[PermissionMode, ...]:
        """Return the permission modes of a session that would allow this call without asking, strictest first."""
        call = self._make_call(name, kind, target, mode)
        return tuple(
            other for other in _WIDER_MODES if _is_settled(call, self.with_permission_mode(other)._evaluate(call))
        )

    @keep_lookups
    def suggest_rules(self, name: str, kind: Kind, target: Target, mode: Mode) -> tuple[str, ...]:
        """Return rules that would allow this call, narrowest first; none if no rule can allow it."""
        call = self._make_call(name, kind, target, mode)
        decision = self._evaluate(call)
        if decision.action == "deny" or _is_settled(call, decision):
            return ()
        if call.kind != "read" and self._find_sensitive_path(call):
            return ()
        texts = (text for text in dict.fromkeys(list_candidate_rules(call)) if not find_objection(parse_rule(text)))
        return tuple(text for text in texts if self._would_allow(text, call))

    @keep_lookups
    def would_decide(self, text: str, action: RuleAction, name: str, kind: Kind, target: Target, mode: Mode) -> bool:
        """True if this rule would decide the call. Raises UsageError if the rule may not be added."""
        call = self._make_call(name, kind, target, mode)
        rule = self.rule_set.check(text, action)
        return self._would_allow(text, call) if action == "allow" else rule.matches_call(call)

    def make_result_filter(self, name: str, kind: Kind, target: Target, mode: Mode) -> ResultFilter:
        """Return a filter for the files that an allowed search must not show."""
        call = self._make_call(name, kind, target, mode)
        bypass = self._allows_everything()
        return ResultFilter(call, self._list_deny_rules(), self.rule_set.ask_allow_rules, bypass=bypass)

    def _list_deny_rules(self) -> tuple[Rule, ...]:
        return tuple(rule for source in (self, *self._limits) for rule in source.rule_set.deny_rules)

    def _would_allow(self, text: str, call: PolicyCall) -> bool:
        rules = self.rule_set.with_rule(parse_rule(text))
        return _is_settled(call, self._with(rule_set=rules)._evaluate(call))

    def _make_call(self, name: str, kind: Kind, target: Target, mode: Mode) -> PolicyCall:
        spec = get_mode_spec(mode)
        if spec.allows_changes and any(limits.read_only for limits in self._limits):
            spec = ASK
        analysis = analyze_command(target.command) if target.command else None
        resolved, command, sandbox = self.resolve(target), target.command, self._confinement
        if kind != "execute" or sandbox is None or not sandbox.is_confining(command):
            scope = self.scope.leave_read_only() if kind == "execute" and self.scope.roots else self.scope
            return PolicyCall(name, kind, resolved, spec, analysis, scope)
        find_level = partial(sandbox.find_level, command)
        return PolicyCall(name, kind, resolved, spec, analysis, self.scope, is_confined=True, find_level=find_level)

    def _evaluate(self, call: PolicyCall) -> Decision:
        decision = self._place(call, self._evaluate_in_session(call))
        for limits in self._limits:
            decision = self._apply_limits(call, decision, limits)
        return decision

    def _apply_limits(self, call: PolicyCall, decision: Decision, limits: AgentLimits) -> Decision:
        """Return the stricter of a decision and what the limits say."""
        if decision.action == "deny":
            return decision
        if not limits.has_tool(call.name, call.target.server_tool):
            return Decision("deny", f"{limits.owner} does not have {call.name}.", rule=limits.owner)
        own = self._with(rule_set=limits.rule_set)
        found = own._check_denials(call)
        doubt = own._check_uncertainty(call) if found is None else None
        if doubt is not None and (doubt.action == "deny" or decision.action == "allow"):
            found = self._apply_dont_ask(doubt)
        if found is None and decision.action == "allow" and not self._allows_everything():
            rule = find_deciding_rule(call, limits.rule_set.ask_allow_rules)
            if rule is not None and rule.action == "ask":
                if call.kind == "execute" and decision.runs_in != "project":
                    return decision if decision.after == "discard" else replace(decision, after="ask")
                found = self._apply_dont_ask(
                    Decision("ask", f"The rule {rule.text!r} asks for approval.", rule=rule.label)
                )
        if found is None:
            return decision
        return self._place(call, replace(found, hint="", reason=f"{found.reason} ({limits.owner})"))

    def _place(self, call: PolicyCall, decision: Decision) -> Decision:
        """Return the decision about a command with where it runs and what happens to what it writes."""
        if call.kind != "execute" or decision.action == "deny":
            return decision
        is_auto = self.permission_mode == "auto" and call.spec.allows_changes
        is_approved = decision.action == "allow" and not decision.hides_secrets
        runs_in: RunsIn = "project"
        if call.is_plainly_read_only():
            runs_in = "read"
        elif call.level == "view" and not _is_background(call):
            runs_in = "view"
        elif call.level == "kernel":
            may_write = call.spec.allows_changes and (is_auto or not decision.hides_secrets)
            runs_in = "project" if may_write else "read"
        after: EffectsAction = "ask"
        if runs_in == "project":
            after = "apply"
        elif not call.spec.allows_changes:
            after = "discard"
        elif is_auto or is_approved or self._allows_everything():
            after = "apply"
        elif self.permission_mode == "dontAsk":
            after = "discard"
        elif self._commands_ask == "before" and decision.action == "ask":
            after = "apply"
        elif self.permission_mode == "acceptEdits":
            after = "edits"
        return replace(decision, runs_in=runs_in, after=after, is_confined=call.is_confined)

    def _evaluate_in_session(self, call: PolicyCall) -> Decision:
        decision = (
            self._check_builtin(call)
            or self._check_denials(call)
            or self._check_mode(call)
            or self._check_access(call)
            or self._check_workspace(call)
            or self._check_write_scope(call)
        )
        if decision is not None:
            return decision
        doubt = self._check_uncertainty(call)
        if doubt is not None:
            return self._apply_dont_ask(doubt)
        if self._allows_everything():
            source = self._name_bypass()
            allowed = Decision("allow", f"{source} allows everything.", rule=f"{source[0].lower()}{source[1:]}")
            return self._check_private_address(call) or allowed
        return self._apply_dont_ask(
            self._check_rules(call)
            or self._check_protected(call)
            or self._check_skill_rules(call)
            or self._decide_default(call)
        )

    def _allows_everything(self) -> bool:
        return self.yes or self.permission_mode == "bypassPermissions"

    def _name_bypass(self) -> str:
        return "--yes" if self.yes else "The permission mode bypassPermissions"

    def _apply_dont_ask(self, decision: Decision) -> Decision:
        if decision.action != "ask" or self.permission_mode != "dontAsk":
            return decision
        return replace(
            decision,
            action="deny",
            reason=f"{decision.reason} The permission mode dontAsk denies every call that needs approval.",
        )

    # --- built-in and rule denials ---

    def _check_builtin(self, call: PolicyCall) -> Decision | None:
        if call.analysis is not None:
            why = find_critical_harm(call.command, call.analysis, self.scope)
            if why:
                hint = "Name the exact files to remove, or run it yourself."
                return _deny_always(f"This command is always denied: {why}.", "destructive commands", hint)
        if call.kind == "network" and call.target.url.casefold().startswith("file:"):
            why = f"{call.target.url} is a file, and {call.name} reads only http and https addresses."
            return _deny_always(why, "file addresses", "Use Read with the path.")
        for item in call.list_paths() if call.kind in ("read", "edit") else ():
            if item.fault:
                return _deny_always(item.fault, "invalid paths", _FAULT_HINT)
            if paths.is_special_file(item.target, "/"):
                why = f"{item.text} is a pipe, a socket or a device, not a regular file."
                return _deny_always(why, "special files", _SPECIAL_FILE_HINT)
            if call.kind == "edit" and any(contains(item.path, root) for root in self.scope.folders):
                why = f"{item.shown} is the project folder or one of its parents, not a file in it."
                return _deny_always(why, "folders", "Name a file in the project.")
        return None

    def _check_denials(self, call: PolicyCall) -> Decision | None:
        for rule in self.rule_set.deny_rules:
            if not rule.matches_call(call) or (rule.exceptions and is_allowed_by(call, rule.exceptions)):
                continue
            return Decision("deny", f"The rule {rule.text!r} denies it.", "Remove the rule to allow it.", rule.label)
        return None

    def _check_uncertainty(self, call: PolicyCall) -> Decision | None:
        """Ask about a command that may do something that a rule denies; where Odin does not ask, deny it."""
        if call.analysis is None:
            return None
        doubt = self._check_possible_denial(call)
        exact = find_exact_rule(call, self.rule_set.ask_allow_rules) if doubt is not None else None
        if doubt is None or (exact is not None and exact.action == "allow"):
            return None
        if self._allows_everything():
            return replace(doubt, action="deny", reason=f"{doubt.reason} {self._name_bypass()} does not override that.")
        return doubt

    def _check_private_address(self, call: PolicyCall) -> Decision | None:
        """Deny a private address that no rule names, where Odin does not ask: a page could send the model there."""
        if not call.is_private_fetch():
            return None
        rule = find_deciding_rule(call, self.rule_set.ask_allow_rules)
        if rule is not None and rule.action == "allow":
            return None
        bypass = self._name_bypass()
        why = f"{call.target.url} is on this machine or in a private network, which {bypass} does not cover."
        return Decision("deny", why, self._suggest_hint(call), "private addresses")

    def _check_possible_denial(self, call: PolicyCall) -> Decision | None:
        if not self.rule_set.deny_rules:
            return None
        from odin.policy.rules.denial import find_possible_denial

        found = find_possible_denial(call, self.rule_set.deny_rules)
        if found is None:
            return None
        why = f"The rule {found.rule.text!r} may deny it: {found.doubt}."
        return Decision("ask", why, "Write every word out, as simple commands.", found.rule.label, may_be_denied=True)

    # --- the mode and the workspace ---

    def _check_mode(self, call: PolicyCall) -> Decision | None:
        spec = call.spec
        name = f"{spec.short_name} mode"
        if not spec.allows_kind(call.kind):
            why = f"{call.name} changes files, which {spec.mode} does not allow."
            return Decision("deny", why, _EDIT_MODE_HINT, name)
        if not call.is_confined and not spec.allows_changes and call.analysis is not None and call.analysis.writes:
            target = call.analysis.writes[0].target.text
            why = f"The command redirects output to {target!r}, and {spec.mode} does not allow changes."
            return Decision("deny", why, _EDIT_MODE_HINT, name)
        return None

    def _check_access(self, call: PolicyCall) -> Decision | None:
        """Deny an edit in a read-only root."""
        if call.kind != "edit" or not self.scope.roots:
            return None
        for item in call.list_paths():
            root = self.scope.find_read_only_root(item.path) or self.scope.find_read_only_root(item.target)
            if root and not item.is_private:
                why = f"{item.shown} is in {root}, which is read-only in this session."
                hint = f"Add it without `:ro` to change it: --add-dir {root}, or /add-dir {root} in the session."
                if self.is_worktree:
                    hint = "An agent in a worktree changes only that."
                return Decision("deny", why, hint, "read-only folders")
        return None

    def _check_workspace(self, call: PolicyCall) -> Decision | None:
        outside = self._find_outside_path(call) if self._restricted else ""
        if not outside:
            return None
        why = f"{outside} is outside the project {self.root}, and restrict_to_workspace is on."
        hint = "Turn restrict_to_workspace off in your user configuration to be asked instead."
        return Decision("deny", why, hint, "restrict_to_workspace")

    def _check_write_scope(self, call: PolicyCall) -> Decision | None:
        """Deny an edit outside the agent's write scope, and a command that redirects its output there."""
        scope = self.write_scope
        if not scope.is_limited or call.kind not in ("edit", "execute"):
            return None
        what = f"this agent's write scope: {scope.describe()}"
        hint = "Change only files in the scope, and report what else needs to be changed."
        if call.kind == "execute":
            outside = find_outside_redirect(call, scope)
        elif call.list_paths():
            items = call.list_paths()
            outside = next((item.shown for item in items if not self._is_in_scope(item)), "")
        else:
            why = f"{call.name} does not name the files it changes, so it cannot be checked against {what}."
            return Decision("deny", why, hint, "the write scope")
        return Decision("deny", f"{outside} is outside {what}.", hint, "the write scope") if outside else None

    def _is_in_scope(self, item: ResolvedPath) -> bool:
        return item.is_private or all(self.write_scope.allows(path, self.root) for path in {item.path, item.target})

    def _find_outside_path(self, call: PolicyCall) -> str:
        """Return the first path of the call that lies outside the project, or ""."""
        if call.analysis is not None:
            return find_outside_word(call.analysis, call.scope, temporary=False)
        return next((item.text for item in call.list_paths() if not self._is_within(item, call.kind)), "")

    def _is_within(self, item: ResolvedPath, kind: Kind) -> bool:
        """True if both the path and what it leads to lie in the project, or may be read like it."""
        return item.is_private or all(self._is_open(path, kind) for path in {item.path, item.target})

    def _is_open(self, path: str, kind: Kind) -> bool:
        if self.scope.find_root(path):
            return True
        if kind != "read" or path.endswith(_LOG_SUFFIX):
            return False
        return any(path != folder and contains(folder, path) for folder in self._readable)

    # --- rules and defaults ---

    def _check_rules(self, call: PolicyCall) -> Decision | None:
        """Apply the ask and allow rules. In ask and plan mode no rule allows a command."""
        rule = find_deciding_rule(call, self.rule_set.ask_allow_rules)
        if rule is None:
            return None
        if rule.action == "ask":
            return Decision("ask", f"The rule {rule.text!r} asks for approval.", self._suggest_hint(call), rule.label)
        if call.kind == "execute" and not call.spec.allows_changes:
            return None
        return Decision("allow", f"The rule {rule.text!r} allows it.", rule=rule.label)

    def _find_sensitive_path(self, call: PolicyCall) -> ResolvedPath | None:
        items = (item for item in call.list_paths() if not item.is_private)
        return next((item for item in items if explain_sensitivity(item, call)), None)

    def _check_protected(self, call: PolicyCall) -> Decision | None:
        item = self._find_sensitive_path(call)
        if item is None:
            return None
        reads = call.kind == "read"
        name, hint = ("secret files", self._suggest_hint(call)) if reads else ("protected files", _YES_HINT)
        return Decision("ask", f"{item.text} {explain_sensitivity(item, call)}.", hint, name)

    def _check_skill_rules(self, call: PolicyCall) -> Decision | None:
        is_lasting = call.kind == "execute" or call.target.persists
        if not self._skill_rules or (is_lasting and not call.spec.allows_changes):
            return None
        from odin.policy.rules.skill_rules import find_skill_rule

        rule = find_skill_rule(call, self._skill_rules)
        if rule is None:
            return None
        return Decision("allow", f"The rule {rule.text!r} allows it.", rule="allowed-tools of a skill")

    def _decide_default(self, call: PolicyCall) -> Decision:
        if call.target.persists and not call.spec.allows_changes:
            why = f"Later sessions would be told this, and {call.spec.mode} keeps nothing for them without approval."
            return Decision("ask", why, self._suggest_hint(call), "memory")
        if call.kind == "interactive":
            return _allow_freely("It only talks to the user.", "talking")
        if call.kind == "network":
            return Decision("ask", _describe_effect(call), self._suggest_hint(call), "the network")
        if call.kind == "execute":
            return self._decide_command(call)
        outside = self._find_outside_path(call)
        if outside:
            why = f"{outside} is outside the project {self.root}."
            return Decision("ask", why, self._suggest_hint(call), "outside the project")
        if call.kind == "read":
            return _allow_freely("It reads inside the project.", "reading the project")
        if call.list_paths() and all(item.is_private for item in call.list_paths()):
            return _allow_freely("It changes a temporary file of this session's commands.", "temporary files")
        if self.permission_mode in ("acceptEdits", "auto") and call.target.paths:
            mode = self.permission_mode
            return _allow_freely(f"It changes files inside the project, and {mode} allows that.", mode)
        is_asked_later = self.is_worktree and not any(limits.permission_mode for limits in self._limits)
        if is_asked_later and self.permission_mode == "default" and call.target.paths:
            return _allow_freely("It changes only the agent's own worktree, and Apply asks.", "worktree")
        return Decision("ask", _describe_effect(call), self._suggest_hint(call), "changes")

    def _decide_command(self, call: PolicyCall) -> Decision:
        analysis = call.analysis
        if analysis is None or not call.command.strip():
            return Decision("ask", f"{call.name} runs a program.", self._suggest_hint(call), "programs")
        if call.is_plainly_read_only():
            return _allow_unseen("The command only reads, and stays inside the project.", READ_ONLY_RULE)
        outside = find_outside_word(analysis, call.scope)
        if outside:
            why = f"The command names {outside}, outside the project {self.root}."
            return Decision("ask", why, self._suggest_hint(call), "outside the project")
        need = self._explain_need(call, analysis)
        if need:
            return Decision("ask", need, self._suggest_hint(call), "commands")
        if self.permission_mode == "auto" and call.spec.allows_changes:
            return _allow_unseen("The sandbox confines it to the project, and auto allows that.", "auto")
        if call.level == "view":
            return _allow_unseen("It runs in a private view of the project.", "commands in a view")
        return _allow_unseen("It runs where it can change nothing.", "commands without writing")

    def _explain_need(self, call: PolicyCall, analysis: CommandAnalysis) -> str:
        """Return why a command that names nothing outside the project needs approval before it runs, or ""."""
        from odin.policy.danger import ONLY_READS, explain_need, is_hard_to_undo

        is_auto = self.permission_mode == "auto" and call.spec.allows_changes
        unconfined = "no sandbox is set up" if self._confinement is None else ""
        if self._confinement is not None:
            unconfined = self._confinement.explain_unconfined(call.command)
        if analysis.script is None:
            return f"The command cannot be fully analyzed: {analysis.reason or 'it cannot be parsed'}."
        need = explain_need(call, self.may_read_secret)
        if need:
            return need
        if is_auto and (unconfined or call.level == "none"):
            return f"The permission mode auto allows sandboxed commands only, and {unconfined or 'this one is not'}."
        if call.level == "none" or unconfined or (self._commands_ask == "before" and not is_auto):
            sentence = _describe_effect(call)
            return "No sandbox keeps it from doing more than reading." if sentence == ONLY_READS else sentence
        if _is_background(call) and not is_auto:
            return "It runs in the background, where its changes cannot be discarded."
        if is_auto and (call.level != "view" or _is_background(call)):
            if not analysis.is_complete:
                return f"The command cannot be fully analyzed: {analysis.reason}."
            guarded = find_sensitive_form(call)
            if guarded:
                return f"The command names {guarded}, which is protected."
            if any(part.name == "git" and "config" in part.texts[1:4] for part in analysis.commands):
                return "The command changes the git configuration, which can make git run programs."
            return _describe_effect(call) if is_hard_to_undo(call) else ""
        return ""

    def _suggest_hint(self, call: PolicyCall) -> str:
        if call.kind == "edit" and call.target.paths and not self._find_outside_path(call):
            return "Allow it with --permission-mode acceptEdits, or everything with --yes."
        if call.kind == "execute" and not call.spec.allows_changes:
            return "Allow it with --yes, or use --mode edit."
        if call.is_private_fetch():
            return f"Allow it with --allowedTools '{next(list_candidate_rules(call), call.name)}'."
        text = next(list_candidate_rules(call), "")
        return (
            f"Allow it with --allowedTools '{text}', or everything with --yes."
            if text and "'" not in text
            else _YES_HINT
        )


def _describe_effect(call: PolicyCall) -> str:
    from odin.policy.danger import describe_call

    return describe_call(call).sentence


def _deny_always(reason: str, rule: str, hint: str = "") -> Decision:
    return Decision("deny", reason, hint, rule, builtin=True)


def _is_background(call: PolicyCall) -> bool:
    return get_canonical_name(call.name) == "Spawn"


def _is_settled(call: PolicyCall, decision: Decision) -> bool:
    """True if nobody is asked about the call, neither before nor after it."""
    if decision.action != "allow":
        return False
    return call.kind != "execute" or decision.after == "apply" or call.is_plainly_read_only()


def _allow_unseen(reason: str, rule: str) -> Decision:
    """Allow a command that nobody has approved, so it cannot read secrets."""
    return Decision("allow", reason, rule=rule, hides_secrets=True)


def _allow_freely(reason: str, rule: str) -> Decision:
    return Decision("allow", reason, rule=rule)
