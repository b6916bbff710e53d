"""What a command would run: every simple command in it, whatever it is wrapped in. The door of `policy/command`.

`survey` finds them for the rules that forbid, and says when it cannot be sure that it found all (`Survey.reason`, the
end of a sentence: "it ...", "a shell ..."). A text that cannot be read still yields the parts that were recognised,
with `sure` False and no `script`. `read_only` is the opposite question and answers yes only to what is plain, known and
harmless. What lies between the two is asked.

`Part.folder` and `Simple.folder` say where a command would run ("" the starting folder, None unknown), supposing that
each `cd` before it succeeds; it is for finding harm, not for proving that there is none. `Unclear.reason` says why a
text could not be read. `command.ruinous.critical` takes the working folder as a fourth argument, and
`command.ruinous.risky` says what is dangerous about a command that is only asked about.
"""

from odin.policy.command.finder import look
from odin.policy.command.grammar import Unclear, parse
from odin.policy.command.harmless import harmless, steps
from odin.policy.command.survey import Part, Survey
from odin.policy.command.wrappers import SHELLS

__all__ = ["SHELLS", "Part", "Survey", "read_only", "split", "survey"]


def survey(command: str) -> Survey:
    """Every command that this text would run, as far as can be told without running it."""
    return look(command)


def split(command: str) -> list[list[str]] | None:
    """The words of every command in the text; None when it is not certain that these are all."""
    seen = survey(command)
    return [list(part.texts) for part in seen.parts] if seen.sure else None


def read_only(command: str, cwd: str, root: str) -> bool:
    """Whether the command provably only looks at what lies inside the root."""
    try:
        script = parse(command)
    except Unclear:
        return False
    placed = steps(script, cwd, root)
    return bool(placed) and all(harmless(simple, there, root) for simple, there in placed or ())
