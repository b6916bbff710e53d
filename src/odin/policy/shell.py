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

from odin.policy.command.harmless import harmless, steps
from odin.policy.command.shapes import Unclear
from odin.policy.command.survey import Part, Survey

__all__ = ["Part", "Survey", "critical", "dangerous", "read_only", "risky", "split", "survey", "unseen"]


def survey(command: str) -> Survey:
    """Every command that this text would run, as far as can be told without running it."""
    from odin.policy.command.finder import look

    return look(command)


def split(command: str) -> list[list[str]] | None:
    """The words of every command in the text; None when it is not certain that these are all."""
    seen = survey(command)
    return [list(part.texts) for part in seen.parts] if seen.sure else None


def read_only(command: str, cwd: str, root: str) -> bool:
    """Whether the command provably only looks at what lies inside the root."""
    from odin.policy.command.grammar import parse

    try:
        script = parse(command)
    except Unclear:
        return False
    placed = steps(script, cwd, root)
    return bool(placed) and all(harmless(simple, there, root) for simple, there in placed or ())


def critical(command: str, seen: Survey, root: str, cwd: str = "") -> str:
    """Why this command may never run, as the end of a sentence, or ""."""
    from odin.policy.command import ruinous

    return ruinous.critical(command, seen, root, cwd)


def unseen(command: str, seen: Survey) -> bool:
    """Whether a command could not be read and is too long to be looked through as well."""
    if seen.sure:
        return False
    from odin.policy.command.ruinous.glance import too_long

    return too_long(command)


def risky(seen: Survey, root: str, cwd: str = "") -> str:
    """What may be removed that is not written out, as the end of a sentence, or ""."""
    from odin.policy.command import ruinous

    return ruinous.risky(seen, root, cwd)


def dangerous(seen: Survey, root: str, cwd: str = "") -> str:
    """What is dangerous about a command that is only asked about: what it may remove, or what git throws away."""
    from odin.policy.command.ruinous.discard import discarded

    return risky(seen, root, cwd) or discarded(seen)
