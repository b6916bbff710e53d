"""May this call run? One question, one answer with its reason, in one order:

    never (critical, forbidden, denied) → the mode → the workspace → bypass → protected → allow rules → the default

A deny beats an ask, an ask beats an allow. When a command cannot be read with certainty, the answer is never "allow"
by default.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from odin.core.event import Mode
from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.command.harmless import harmless, harmless_redirect, steps
from odin.policy.command.reach import leaves, outside_word
from odin.policy.command.ruinous import critical
from odin.policy.entry import CommandPrefix, entries_of, host_of, prefixes_of
from odin.policy.modes import PLAN, ModeSpec, PermissionMode, permission_mode_of, spec_of
from odin.policy.shell import Survey, read_only, survey

Action = Literal["allow", "ask", "deny"]


class Verdict(Struct, frozen=True):
    """`reason` says why in one sentence; `hint` how a person without a terminal could allow it."""

    action: Action
    reason: str = ""
    hint: str = ""


ALLOW = Verdict("allow")


class _Call(Struct, frozen=True):
    """One call with what several rules look at."""

    name: str
    kind: Kind
    subject: Subject
    spec: ModeSpec
    seen: Survey | None


class Policy:
    """The rules of one session. It holds no state: a changed permission mode is a new policy."""

    def __init__(
        self,
        *,
        root: str,
        cwd: str = "",
        permission_mode: str = "default",
        yes: bool = False,
        allowed_tools: Iterable[str] = (),
        disallowed_tools: Iterable[str] = (),
        allowed_commands: Iterable[str] = (),
        forbidden_commands: Iterable[str] = (),
        restrict_to_workspace: bool = False,
    ) -> None:
        self.root = paths.real(root, "/") or root
        self.cwd = paths.real(cwd or root, "/") or self.root
        self.permission_mode: PermissionMode = permission_mode_of(permission_mode)
        self.yes = yes
        self._allowed = entries_of(allowed_tools)
        self._denied = entries_of(disallowed_tools)
        self._allowed_commands = prefixes_of(allowed_commands)
        self._forbidden = prefixes_of(forbidden_commands)
        self._restricted = restrict_to_workspace

    def with_permission_mode(self, mode: str) -> "Policy":
        """The same rules under another permission mode."""
        other = object.__new__(Policy)
        other.__dict__.update(self.__dict__)
        other.permission_mode = permission_mode_of(mode)
        return other

    def judge(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> Verdict:
        spec = PLAN if self.permission_mode == "plan" else spec_of(mode)
        seen = survey(subject.command) if subject.command else None
        call = _Call(name, kind, subject, spec, seen)
        verdict = self._never(call) or self._by_mode(call) or self._unusable(call) or self._by_workspace(call)
        if verdict is not None:
            return verdict
        doubt = self._doubt(call)
        if doubt is not None:
            return self._settled(doubt)
        if self.yes or self.permission_mode == "bypassPermissions":
            return ALLOW
        return self._settled(self._protected(call) or self._by_rule(call) or self._by_default(call))

    def _settled(self, verdict: Verdict) -> Verdict:
        if verdict.action != "ask" or self.permission_mode != "dontAsk":
            return verdict
        return Verdict(
            "deny", f"{verdict.reason} The permission mode dontAsk refuses what would be asked.", verdict.hint
        )

    # --- what never runs ---

    def _never(self, call: _Call) -> Verdict | None:
        if call.seen is not None:
            why = critical(call.subject.command, call.seen, self.root)
            if why:
                return Verdict(
                    "deny", f"This command never runs: {why}.", "Name exactly what is meant, or do it by hand."
                )
            forbidden = self._forbidden_in(call)
            if forbidden is not None:
                return forbidden
        for entry in self._denied:
            if entry.touches(call.name, call.kind, call.subject, call.seen, self.root, self.cwd):
                return Verdict(
                    "deny", f"The rule {entry.text!r} denies it.", "Remove it from disallowed_tools to allow it."
                )
        return None

    def _forbidden_in(self, call: _Call) -> Verdict | None:
        seen, command = call.seen, call.subject.command
        if seen is None or not self._forbidden:
            return None
        for prefix in self._forbidden:
            if any(prefix.forbids(part) for part in seen.parts):
                return Verdict("deny", f"ForbiddenCommands names {prefix.text!r}.", "Remove it there to allow it.")
            if not seen.sure and prefix.appears_in(command):
                return Verdict(
                    "deny", f"The command may run {prefix.text!r}, which ForbiddenCommands names.", "Write it plainly."
                )
        return None

    def _doubt(self, call: _Call) -> Verdict | None:
        """Where commands are forbidden, one that cannot be read for certain is asked about even under a bypass."""
        if call.seen is None or call.seen.sure:
            return None
        if not self._forbidden and not any(entry.pattern and entry.names(call.name) for entry in self._denied):
            return None
        why = "It cannot be told for certain that this command runs nothing that is forbidden."
        return Verdict("ask", why, "Write it as plain commands.")

    # --- the mode and the workspace ---

    def _by_mode(self, call: _Call) -> Verdict | None:
        spec = call.spec
        if not spec.shows(call.kind):
            why = f"{call.name} changes files, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, "Use edit mode (--mode edit) for that.")
        if call.kind == "execute" and not spec.changes and call.seen is not None and call.seen.writes:
            target = call.seen.writes[0].target.text
            why = f"The command writes to {target!r} by redirection, and in {spec.mode} nothing is changed."
            return Verdict("deny", why, "Use edit mode (--mode edit) for that.")
        return None

    def _unusable(self, call: _Call) -> Verdict | None:
        """Paths that no file tool can use: reading a pipe may never end, and the project itself is not a file."""
        for path in call.subject.paths if call.kind in ("read", "edit") else ():
            if call.kind == "edit" and "\0" in path:
                return Verdict("deny", f"{path!r} contains a NUL byte, so it is no path.")
            if paths.special(path, self.cwd):
                return Verdict("deny", f"{path} is a pipe, a socket or a device, not a file.")
            if call.kind == "edit" and paths.contains(paths.real(path, self.cwd) or "/", self.root):
                return Verdict("deny", f"{path} is the project folder or one above it, not a file in it.")
        return None

    def _by_workspace(self, call: _Call) -> Verdict | None:
        if not self._restricted:
            return None
        outside = self._outside(call)
        if not outside:
            return None
        why = f"{outside} is outside the project {self.root}, and restrict_to_workspace is on."
        return Verdict("deny", why, "Switch restrict_to_workspace off in your user file to be asked instead.")

    def _outside(self, call: _Call) -> str:
        """The first path of the call that leaves the project, or ""."""
        if call.seen is not None:
            return outside_word(call.seen, self.cwd, self.root)
        for path in call.subject.paths:
            if not paths.inside(path, self.root, self.cwd):
                return path
        return ""

    # --- rules and defaults ---

    def _protected(self, call: _Call) -> Verdict | None:
        if call.kind != "edit":
            return None
        for path in call.subject.paths:
            name = paths.protected(path, self.root, self.cwd)
            if name:
                why = f"{path} is protected: a change to {name} can make programs run or rules change."
                return Verdict("ask", why, _YES)
        return None

    def _by_rule(self, call: _Call) -> Verdict | None:
        """An allow rule that covers the whole call. In ask and plan mode no rule lets a command run unasked."""
        if call.kind == "execute":
            return ALLOW if call.spec.changes and self._command_allowed(call) else None
        for entry in self._allowed:
            if entry.covers(call.name, call.kind, call.subject, self.root, self.cwd):
                return ALLOW
        return None

    def _command_allowed(self, call: _Call) -> bool:
        entries = [entry for entry in self._allowed if entry.names(call.name)]
        if any(entry.pattern == "*" or entry.is_exactly(call.subject.command) for entry in entries):
            return True
        seen = call.seen
        if seen is None:
            return any(not entry.pattern for entry in entries)
        if any(not entry.pattern for entry in entries) and seen.sure:
            named = [text for part in seen.parts for text in part.texts[1:]]
            named += [redirect.target.text for redirect in seen.writes]
            return not outside_word(seen, self.cwd, self.root) and not self._names_protected(named, self.cwd)
        prefixes = [*self._allowed_commands, *(entry.command for entry in entries if entry.pattern)]
        return bool(prefixes) and self._every_step_allowed(seen, prefixes)

    def _every_step_allowed(self, seen: Survey, prefixes: Sequence[CommandPrefix]) -> bool:
        """Each command is harmless, or begins like an allowed one and then names nothing outside or protected."""
        placed = steps(seen.script, self.cwd, self.root) if seen.script else None
        if not placed:
            return False
        for simple, cwd in placed:
            if harmless(simple, cwd, self.root):
                continue
            if not all(harmless_redirect(item) for item in simple.redirects):
                return False
            rest = next(
                (found for found in (prefix.rest(simple.words) for prefix in prefixes) if found is not None), None
            )
            if rest is None or not all(word.literal for word in simple.words):
                return False
            named = [word.text for word in rest]
            if any(leaves(text, cwd, self.root) for text in named) or self._names_protected(named, cwd):
                return False
        return True

    def _names_protected(self, texts: Iterable[str], cwd: str) -> bool:
        return any(paths.protected(text, self.root, cwd) for text in texts)

    def _by_default(self, call: _Call) -> Verdict:
        if call.kind == "talk":
            return ALLOW
        if call.kind == "network":
            return Verdict("ask", f"{call.name} reaches the network: {call.subject.text}.", self._hint(call))
        if call.kind == "execute":
            return self._command(call)
        outside = self._outside(call)
        if outside:
            return Verdict("ask", f"{outside} is outside the project {self.root}.", self._hint(call))
        if call.kind == "read" or (self.permission_mode == "acceptEdits" and call.subject.paths):
            return ALLOW
        return Verdict("ask", f"{call.name} changes {call.subject.text or 'files'}.", self._hint(call))

    def _command(self, call: _Call) -> Verdict:
        command, seen = call.subject.command, call.seen
        if seen is None or not command.strip():
            return Verdict("ask", f"{call.name} runs a program.", self._hint(call))
        if read_only(command, self.cwd, self.root):
            return ALLOW
        outside = outside_word(seen, self.cwd, self.root)
        if outside:
            return Verdict("ask", f"The command names {outside}, outside the project {self.root}.", self._hint(call))
        why = "The command may change things." if seen.sure else "What the command runs cannot be told for certain."
        if not call.spec.changes:
            why = f"In {call.spec.mode} only commands that are known to change nothing run without a question."
        return Verdict("ask", why, self._hint(call))

    def _hint(self, call: _Call) -> str:
        if call.kind == "edit" and not self._outside(call):
            return "Allow it with --permission-mode acceptEdits, or everything with --yes."
        if call.kind == "execute" and not call.spec.changes:
            return "Allow it with --yes, or use --mode edit."
        pattern = _suggestion(call)
        return f"Allow it with --allowedTools '{call.name}({pattern})', or everything with --yes." if pattern else _YES


_YES = "Allow it with --yes."


def _suggestion(call: _Call) -> str:
    """A pattern that would allow this very call, when one can be written in a line."""
    if call.kind == "execute":
        text = call.subject.command.strip()
        return text if len(text) <= 100 and text.isprintable() and "'" not in text else ""
    if call.subject.url:
        host = host_of(call.subject.url)
        return f"domain:{host}" if host else ""
    text = call.subject.paths[0] if len(call.subject.paths) == 1 else ""
    return text if text.isprintable() and not set(text) & set("'()*?[") else ""
