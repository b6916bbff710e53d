"""Which commands run unasked in the permission mode `auto`: those that the sandbox confines to the project.

The sandbox keeps a command from the network and from files outside the project. It does not keep it from destroying
work inside the project, so commands that are known to be hard to undo still need approval, and so do commands that
cannot be analyzed.
"""

from typing import Protocol

from odin.policy.call_effects import describe_call
from odin.policy.commands.syntax import CommandAnalysis
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.ruling import find_sensitive_form


class Confinement(Protocol):
    """What is known about the sandbox of a session."""

    def explain_unconfined(self, command: str = "") -> str:
        """Return why a command would not be confined to the project and cut off from the network, as a clause.

        Return "" if it would be. Without a command, answer for commands in general.
        """
        ...


def explain_auto_doubt(call: PolicyCall, analysis: CommandAnalysis, confinement: Confinement | None) -> str:
    """Return why a command that stays inside the project needs approval although the mode is `auto`, or ""."""
    unconfined = "no sandbox is set up" if confinement is None else confinement.explain_unconfined(call.command)
    if unconfined:
        return f"The permission mode auto allows sandboxed commands only, and {unconfined}."
    if not analysis.is_complete:
        return f"The command cannot be fully analyzed: {analysis.reason or 'it cannot be parsed'}."
    unknown = next((part for part in analysis.commands if not part.words[0].literal), None)
    if unknown is not None:
        return f"It is only known when it runs which program {unknown.words[0].text} is."
    guarded = find_sensitive_form(call)
    if guarded:
        return f"The command names {guarded}, which is protected or may contain secrets."
    if any(part.name == "git" and "config" in part.texts[1:4] for part in analysis.commands):
        return "The command changes the git configuration, which can make git run programs."
    effect = describe_call(call)
    return "" if effect.danger in ("harmless", "changes_files") else effect.sentence
