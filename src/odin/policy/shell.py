"""What a command would run: every simple command in it, whatever it is wrapped in. The door of `policy/command`.

`survey` finds them for the rules that forbid, and says when it cannot be sure that it found all (`Survey.reason`, the
end of a sentence: "it ...", "a shell ..."). A text that cannot be read still yields the parts that were recognised,
with `sure` False and no `script`. `read_only` is the opposite question and answers yes only to what is plain, known and
harmless. What lies between the two is asked.

`Part.folder` and `Simple.folder` say where a command would run ("" the starting folder, None unknown), supposing that
each `cd` before it succeeds; it is for finding harm, not for proving that there is none. `Unclear.reason` says why a
text could not be read.

The readers behind the door are loaded with the first command: a prompt that runs none does without them.
"""

from odin.policy.command.harmless import is_step_read_only, locate_steps
from odin.policy.command.shapes import Unparseable
from odin.policy.command.survey import CommandAnalysis, ExtractedCommand

__all__ = [
    "CommandAnalysis",
    "ExtractedCommand",
    "analyze_command",
    "find_critical_harm",
    "find_danger",
    "find_removal_risk",
    "is_read_only",
    "is_too_long_to_scan",
    "split_commands",
]


def analyze_command(command: str) -> CommandAnalysis:
    """Every command that this text would run, as far as can be told without running it."""
    from odin.policy.command.finder import extract_commands

    return extract_commands(command)


def split_commands(command: str) -> list[list[str]] | None:
    """The words of every command in the text; None when it is not certain that these are all."""
    seen = analyze_command(command)
    return [list(part.texts) for part in seen.commands] if seen.is_complete else None


def is_read_only(command: str, cwd: str, root: str) -> bool:
    """Whether the command provably only looks at what lies inside the root."""
    from odin.policy.command.grammar import parse_command

    try:
        script = parse_command(command)
    except Unparseable:
        return False
    placed = locate_steps(script, cwd, root)
    return bool(placed) and all(is_step_read_only(simple, there, root) for simple, there in placed or ())


def find_critical_harm(command: str, analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """Why this command may never run, as the end of a sentence, or ""."""
    from odin.policy.command import ruinous

    return ruinous.find_harm(command, analysis, root, cwd)


def is_too_long_to_scan(command: str, analysis: CommandAnalysis) -> bool:
    """Whether a command could not be read and is too long to be looked through as well."""
    if analysis.is_complete:
        return False
    from odin.policy.command.ruinous.glance import is_too_long

    return is_too_long(command)


def find_removal_risk(analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """What may be removed that is not written out, as the end of a sentence, or ""."""
    from odin.policy.command import ruinous

    return ruinous.find_risk(analysis, root, cwd)


def find_danger(analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """What is dangerous about a command that is only asked about: what it may remove, or what git throws away."""
    from odin.policy.command.ruinous.discard import find_discard_harm

    return find_removal_risk(analysis, root, cwd) or find_discard_harm(analysis)
