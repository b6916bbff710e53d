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
from odin.core.rule import Action
from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.call import Call
from odin.policy.command.reach import outside_word
from odin.policy.modes import PLAN, PermissionMode, permission_mode_of, spec_of
from odin.policy.rule.book import Rulebook
from odin.policy.rule.keptback import KeptBack, opens_folders
from odin.policy.rule.rule import Rule, rule_of, sensitive
from odin.policy.rule.ruling import allowed_by, exact_ruling, ruling
from odin.policy.rule.shapes import listed
from odin.policy.rule.suggest import candidates
from odin.policy.shell import critical, dangerous, survey, unseen


class Verdict(Struct, frozen=True):
    """`reason` says why in one sentence; `hint` how a person without a terminal could allow it.

    `rule` is the rule that decided, with its layer, or the name of the built-in one. What is `builtin` holds whatever
    a rule, a hook or a person says.
    """

    action: Action
    reason: str = ""
    hint: str = ""
    rule: str = ""
    builtin: bool = False


_YES = "Allow it with --yes."
_EDIT_MODE = "Use edit mode (--mode edit) for that."

_LOGS = ".jsonl"


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
        rulebook: Rulebook | None = None,
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
        self.root = paths.real(root, "/") or root
        self.cwd = paths.real(cwd or root, "/") or self.root
        self.permission_mode: PermissionMode = permission_mode_of(permission_mode)
        self.yes = yes
        self.rulebook = rulebook or Rulebook(
            listed(
                allowed_tools=allowed_tools,
                disallowed_tools=disallowed_tools,
                allowed_commands=allowed_commands,
                forbidden_commands=forbidden_commands,
            )
        )
        self._restricted = restrict_to_workspace
        self._readable = paths.real(readable, "/") or readable if readable else ""

    def with_permission_mode(self, mode: str) -> "Policy":
        """The same rules under another permission mode."""
        return self._with(permission_mode=permission_mode_of(mode))

    def _with(self, **changed: Any) -> "Policy":
        other = object.__new__(Policy)
        other.__dict__.update(self.__dict__, **changed)
        return other

    def judge(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> Verdict:
        return self._judge(self._call(name, kind, subject, mode))

    def suggestions(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> tuple[str, ...]:
        """Rules that would let the same call run, the narrowest first; none where no rule may answer."""
        call = self._call(name, kind, subject, mode)
        if self._judge(call).action != "ask" or (call.kind != "read" and self._sensitive(call)):
            return ()
        return tuple(text for text in dict.fromkeys(candidates(call)) if self._would_allow(text, call))

    def meets(self, text: str, action: Action, name: str, kind: Kind, subject: Subject, mode: Mode) -> bool:
        """Whether a rule somebody wrote would decide this call. Raises UsageError when it may not be added."""
        call = self._call(name, kind, subject, mode)
        rule = self.rulebook.check(text, action)
        return self._would_allow(text, call) if action == "allow" else rule.touches(call)

    def keeps_back(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> KeptBack:
        """Which files an admitted search must not show."""
        free = self.yes or self.permission_mode == "bypassPermissions"
        call = self._call(name, kind, subject, mode)
        return KeptBack(call, self.rulebook.denials, self.rulebook.speaking, free=free)

    def _would_allow(self, text: str, call: Call) -> bool:
        book = self.rulebook.with_rule(rule_of(text))
        return self._with(rulebook=book)._judge(call).action == "allow"

    def _call(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> Call:
        spec = PLAN if self.permission_mode == "plan" else spec_of(mode)
        seen = survey(subject.command) if subject.command else None
        return Call(name, kind, subject, spec, seen, self.root, self.cwd)

    def _judge(self, call: Call) -> Verdict:
        verdict = self._never(call) or self._denied(call) or self._by_mode(call) or self._by_workspace(call)
        if verdict is not None:
            return verdict
        doubt = self._doubt(call)
        if doubt is not None:
            return self._settled(doubt)
        if self.yes or self.permission_mode == "bypassPermissions":
            how = "--yes" if self.yes else "the permission mode bypassPermissions"
            return Verdict("allow", f"Nothing is asked with {how}.", rule=how)
        return self._settled(self._by_rule(call) or self._protected(call) or self._by_default(call))

    def _settled(self, verdict: Verdict) -> Verdict:
        if verdict.action != "ask" or self.permission_mode != "dontAsk":
            return verdict
        return replace(
            verdict,
            action="deny",
            reason=f"{verdict.reason} The permission mode dontAsk refuses what would be asked.",
        )

    # --- what never runs ---

    def _never(self, call: Call) -> Verdict | None:
        if call.seen is not None:
            why = critical(call.command, call.seen, self.root, self.cwd)
            if why:
                hint = "Name exactly what is meant, or do it by hand."
                return _never(f"This command never runs: {why}.", "commands that never run", hint)
        for path in call.subject.paths if call.kind in ("read", "edit") else ():
            if "\0" in path:
                return _never(f"{path!r} contains a NUL byte, so it is no path.", "no path")
            if paths.special(path, self.cwd):
                return _never(f"{path} is a pipe, a socket or a device, not a file.", "special files")
            if call.kind == "edit" and paths.contains(paths.real(path, self.cwd) or "/", self.root):
                return _never(f"{path} is the project folder or one above it, not a file in it.", "folders")
        return None

    def _denied(self, call: Call) -> Verdict | None:
        for rule in self.rulebook.denials:
            if not rule.touches(call) or (rule.spared and allowed_by(call, rule.spared)):
                continue
            hint = f"Remove it from {rule.source} to allow it." if rule.source else "Remove it to allow it."
            return Verdict("deny", f"The rule {rule.text!r} denies it.", hint, rule.label)
        return None

    def _doubt(self, call: Call) -> Verdict | None:
        """What may come upon something that a rule denies is asked about even under a bypass."""
        if call.seen is None:
            return None
        if unseen(call.command, call.seen):
            why = "The command is too long to be read or looked through, so anything may hide in it."
            return Verdict("ask", why, "Write it into a file and run that.", "overlong commands")
        doubt = self._unread(call) if not call.seen.sure else self._unnamed(call)
        exact = exact_ruling(call, self.rulebook.speaking) if doubt is not None else None
        return None if exact is not None and exact.action == "allow" else doubt

    def _unread(self, call: Call) -> Verdict | None:
        """Where commands are denied, one that cannot be read for certain."""
        rule = next((rule for rule in self.rulebook.denials if not rule.bare and _for_commands(rule, call)), None)
        if rule is None:
            return None
        why = "It cannot be told for certain that this command runs nothing that is forbidden."
        return Verdict("ask", why, "Write it as plain commands.", rule.label)

    def _unnamed(self, call: Call) -> Verdict | None:
        """Where files are denied to readers, a command that opens every file of a folder."""
        rule = next((rule for rule in self.rulebook.denials if rule.tool == "Read" and not rule.bare), None)
        if rule is None or call.seen is None or not any(opens_folders(part) for part in call.seen.parts):
            return None
        why = f"It opens every file below a folder, and the rule {rule.text!r} denies some."
        return Verdict("ask", why, "Use Grep, which leaves them out.", rule.label)

    # --- the mode and the workspace ---

    def _by_mode(self, call: Call) -> Verdict | None:
        spec = call.spec
        name = f"{spec.short} mode"
        if not spec.shows(call.kind):
            why = f"{call.name} changes files, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, _EDIT_MODE, name)
        if call.kind == "execute" and not spec.changes and call.seen is not None and call.seen.writes:
            target = call.seen.writes[0].target.text
            why = f"The command writes to {target!r} by redirection, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, _EDIT_MODE, name)
        return None

    def _by_workspace(self, call: Call) -> Verdict | None:
        outside = self._outside(call) if self._restricted else ""
        if not outside:
            return None
        why = f"{outside} is outside the project {self.root}, and restrict_to_workspace is on."
        hint = "Switch restrict_to_workspace off in your user file to be asked instead."
        return Verdict("deny", why, hint, "restrict_to_workspace")

    def _outside(self, call: Call) -> str:
        """The first path of the call that leaves the project, or ""."""
        if call.seen is not None:
            return outside_word(call.seen, self.cwd, self.root)
        return next((path for path in call.subject.paths if not self._within(path, call.kind)), "")

    def _within(self, path: str, kind: Kind) -> bool:
        if paths.inside(path, self.root, self.cwd):
            return True
        found = paths.real(path, self.cwd) if kind == "read" and self._readable else None
        if found is None or found == self._readable or found.endswith(_LOGS):
            return False
        return paths.contains(self._readable, found)

    # --- rules and defaults ---

    def _by_rule(self, call: Call) -> Verdict | None:
        """What the rules say. In ask and plan mode none of them lets a command run unasked."""
        rule = ruling(call, self.rulebook.speaking)
        if rule is None:
            return None
        if rule.action == "ask":
            return Verdict("ask", f"The rule {rule.text!r} wants it asked about.", self._hint(call), rule.label)
        if call.kind == "execute" and not call.spec.changes:
            return None
        return Verdict("allow", f"The rule {rule.text!r} allows it.", rule=rule.label)

    def _sensitive(self, call: Call) -> str:
        return next((path for path in call.subject.paths if sensitive(path, call)), "")

    def _protected(self, call: Call) -> Verdict | None:
        path = self._sensitive(call)
        if not path:
            return None
        reads = call.kind == "read"
        name, hint = ("secret files", self._hint(call)) if reads else ("protected files", _YES)
        return Verdict("ask", f"{path} {sensitive(path, call)}.", hint, name)

    def _by_default(self, call: Call) -> Verdict:
        if call.kind == "talk":
            return _free("It only talks to the person.", "talking")
        if call.kind == "network":
            why = f"{call.name} reaches the network: {call.subject.text}."
            return Verdict("ask", why, self._hint(call), "the network")
        if call.kind == "execute":
            return self._command(call)
        outside = self._outside(call)
        if outside:
            why = f"{outside} is outside the project {self.root}."
            return Verdict("ask", why, self._hint(call), "outside the project")
        if call.kind == "read":
            return _free("It reads inside the project.", "reading the project")
        if self.permission_mode == "acceptEdits" and call.subject.paths:
            return _free("It changes files inside the project, and edits are accepted.", "acceptEdits")
        return Verdict("ask", f"{call.name} changes {call.subject.text or 'files'}.", self._hint(call), "changes")

    def _command(self, call: Call) -> Verdict:
        seen = call.seen
        if seen is None or not call.command.strip():
            return Verdict("ask", f"{call.name} runs a program.", self._hint(call), "programs")
        if call.only_looks():
            return _free("It only looks at the project.", "commands that only look")
        outside = outside_word(seen, self.cwd, self.root)
        if outside:
            why = f"The command names {outside}, outside the project {self.root}."
            return Verdict("ask", why, self._hint(call), "outside the project")
        why = "The command may change things."
        danger = dangerous(seen, self.root, self.cwd)
        if danger:
            why = f"The command is dangerous: {danger}."
        elif not seen.sure:
            why = f"What the command runs cannot be told for certain: {seen.reason or 'it cannot be read'}."
        else:
            doubt = call.doubt()
            if doubt:
                why = f"It is not certain that the command only looks: {doubt}."
            if not call.spec.changes:
                why = f"In {call.spec.mode} only commands that are known to change nothing run without a question"
                why += f": {doubt}." if doubt else "."
        return Verdict("ask", why, self._hint(call), "commands")

    def _hint(self, call: Call) -> str:
        if call.kind == "edit" and not self._outside(call):
            return "Allow it with --permission-mode acceptEdits, or everything with --yes."
        if call.kind == "execute" and not call.spec.changes:
            return "Allow it with --yes, or use --mode edit."
        text = next(candidates(call), "")
        return f"Allow it with --allowedTools '{text}', or everything with --yes." if text and "'" not in text else _YES


def _never(reason: str, rule: str, hint: str = "") -> Verdict:
    return Verdict("deny", reason, hint, rule, builtin=True)


def _free(reason: str, rule: str) -> Verdict:
    return Verdict("allow", reason, rule=rule)


def _for_commands(rule: Rule, call: Call) -> bool:
    return rule.names(call.name) or rule.tool == "ExecuteCommand"
