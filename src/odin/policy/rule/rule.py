"""One rule: `Tool` or `Tool(pattern)`, with what it says and who said it.

An allow rule covers a call only when it means all of it. A rule that denies or asks touches a call as soon as it means
some of it.
"""

import re

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.registry import canonical
from odin.core.rule import Action, Layer
from odin.core.tool import Kind
from odin.policy import paths
from odin.policy.call import Call, forms
from odin.policy.confidential import confidential
from odin.policy.rule.escape import holds_code
from odin.policy.rule.pattern import (
    CommandPattern,
    anchored,
    command_pattern,
    name_matches,
    names_exactly,
    path_allowed,
    path_touched,
    url_allowed,
    url_touched,
    wild,
)
from odin.policy.shell import Part

_FORM = r"(?s)\s*([\w*?.:-]+)\s*(?:\((.*)\))?\s*"
_WHOLE_KINDS: dict[str, Kind] = {"Read": "read", "EditTool": "edit"}
"""`Read(pattern)` means all tools that read, `Edit(pattern)` all that change files; a bare name, that tool."""

_EVERYTHING = ("", "*", "**", ":*")


class Rule(Struct, frozen=True):
    """`source` says where it is written. A denial of everything may spare what the rules in `spared` allow."""

    text: str
    tool: str
    pattern: str
    command: CommandPattern
    action: Action = "allow"
    layer: Layer = "session"
    source: str = ""
    spared: tuple["Rule", ...] = ()

    @property
    def label(self) -> str:
        """How a verdict names it."""
        where = f", {self.source}" if self.source else ""
        return f"{self.action} {self.text} ({self.layer}{where})"

    @property
    def bare(self) -> bool:
        """Whether it means the tool and all it does. `Edit(**)` means every tool that changes files instead."""
        return not self.pattern or (self.everything and self.tool not in _WHOLE_KINDS)

    @property
    def everything(self) -> bool:
        return self.pattern in _EVERYTHING

    def names(self, name: str) -> bool:
        """Rules for ExecuteCommand hold for Spawn too: the same commands run, only longer."""
        name = canonical(name)
        return name_matches(self.tool, name) or (name == "Spawn" and self.tool == "ExecuteCommand")

    # --- to allow ---

    def is_exactly(self, call: Call) -> bool:
        """Whether it is this very command, letter for letter. A wildcard in it is not meant for a shell."""
        if self.bare or self.command.open or wild(self.pattern):
            return False
        return self.pattern == call.command.strip() and self.names(call.name)

    def covers_path(self, path: str, call: Call) -> bool:
        """Whether one path of a call is allowed. Protected and private files count only when they are named.

        Nothing but its own name and exact path allows a deletion.
        """
        found = paths.real(path, call.cwd)
        if found is None or not self._reaches(call.name, call.kind):
            return False
        if canonical(call.name) == "Delete":
            return self.tool == "Delete" and anchored(self.pattern, call.root) in (found, path)
        if self.bare:
            return paths.contains(call.root, found) and not sensitive(path, call)
        if not path_allowed(self.pattern, found, call.root):
            return False
        return names_exactly(self.pattern) or not sensitive(path, call)

    def covers_url(self, call: Call) -> bool:
        return self.names(call.name) and (self.bare or url_allowed(self.pattern, call.subject.url))

    def covers_all(self, call: Call) -> bool:
        """Whether it allows a call that names nothing the rules could look at."""
        return self.bare and self.names(call.name) and canonical(call.name) != "Delete"

    # --- to deny and to ask ---

    def touches(self, call: Call) -> bool:
        """Whether any part of the call is meant. Patterns for reading and editing also hold for a command's words."""
        runs = call.seen is not None
        named = self.names(call.name) or (runs and self.tool == "ExecuteCommand")
        if named and self.bare:
            return True
        if named and call.seen is not None:
            if self.pattern == call.command.strip() or any(self._means(part) for part in call.seen.parts):
                return True
            return not call.seen.sure and self.command.appears_in(call.command)
        if call.subject.url:
            return named and url_touched(self.pattern, call.subject.url)
        return self._touches_path(call)

    def touches_part(self, part: Part, call: Call) -> bool:
        named = self.names(call.name) or self.tool == "ExecuteCommand"
        return named and (self.bare or self._means(part))

    def _means(self, part: Part) -> bool:
        """Whether a command is the one, or names it in a program that it is given."""
        if self.command.means(part):
            return True
        return (
            bool(part.words)
            and holds_code(part.texts)
            and any(self.command.appears_in(text) for text in part.texts[1:])
        )

    def _touches_path(self, call: Call) -> bool:
        if self.bare:
            return False
        reaches = self._reaches(call.name, call.kind)
        if self.everything:
            return reaches
        if not reaches and not (call.seen is not None and self.tool in _WHOLE_KINDS):
            return False
        return any(path_touched(self.pattern, form, call.root) for form in call.forms())

    def _reaches(self, name: str, kind: Kind) -> bool:
        return self.names(name) or (not self.bare and _WHOLE_KINDS.get(self.tool) == kind)


def sensitive(path: str, call: Call) -> str:
    """Why a path is one to ask about whatever a wildcard says, as the end of a sentence, or ""."""
    if call.kind == "read":
        secret = any(confidential(form) for form in forms(path, call.cwd))
        return "is a file in which people keep secrets" if secret else ""
    name = paths.protected(path, call.root, call.cwd)
    if name:
        return f"is protected: a change to {name} can make programs run or rules change"
    if canonical(call.name) != "Delete" and paths.shared(path, call.cwd):
        return "has a second name, and what is written to it appears there as well"
    return ""


def rule_of(text: str, action: Action = "allow", layer: Layer = "session", source: str = "") -> Rule:
    """Read what a person wrote. Raises UsageError when it is not a rule."""
    found = re.fullmatch(_FORM, text)
    if found is None:
        raise UsageError(f"{text!r} is not a rule.", "Write Tool or Tool(pattern), such as Bash(git log:*).")
    pattern = (found[2] or "").strip()
    return Rule(text.strip(), canonical(found[1]), pattern, command_pattern(pattern), action, layer, source)


def objection(rule: Rule) -> str:
    """Why a rule may not be kept, or "": it must show what it allows, and deletions are allowed one path at a time."""
    if rule.action != "allow":
        return ""
    if not rule.text.isprintable():
        return f"{rule.text!r} holds characters that do not show, so nobody can see what it allows."
    if rule.tool == "Delete" and (rule.bare or wild(rule.pattern)):
        return (
            f"{rule.text} would allow deletions unseen: Delete takes exact paths only, such as Delete(build/old.log)."
        )
    return ""
