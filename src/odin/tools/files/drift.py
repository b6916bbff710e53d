"""What to say when a file is no longer what the model has read: which of its lines are different now."""

from odin.context.files import FileCache, SeenPart
from odin.core.errors import Conflict, ExternalModification
from odin.tools.files.diff import compare
from odin.tools.files.path import Refusal
from odin.tools.files.text import decode

_DIFF_CHARS = 3000
_MAX_PARTS = 10


def make_stale_refusal(files: FileCache, path: str, sha256: str, sentence: str) -> Refusal:
    """The refusal to touch a file that is no longer what was read. It says so when another agent changed it."""
    by = files.writer_of(path, sha256)
    if by:
        return Refusal(f"{sentence} (It was changed by {by}.)", Conflict)
    return Refusal(sentence, ExternalModification)


def describe_drift(files: FileCache, path: str, data: bytes) -> str:
    """Sentences about what changed, beginning with a space; empty when the old text is not kept."""
    decoded = decode(data)
    entry = files.find(path)
    parts = files.list_parts(path)
    if decoded is None or entry is None or not parts:
        return ""
    if entry.whole:
        before = "".join(f"{line}\n" for line in parts[0].lines)
        after = decoded.text if decoded.text.endswith("\n") or not decoded.text else f"{decoded.text}\n"
        diff = compare(before, after, path).text
        if not diff:
            return " Only its last line end or its encoding is different."
        cut = f"\n... ({_DIFF_CHARS} of {len(diff)} characters of the difference)" if len(diff) > _DIFF_CHARS else ""
        return f" This is different now:\n{diff[:_DIFF_CHARS].rstrip()}{cut}\n"
    now = decoded.text.split("\n")
    said = [sentence for part in parts if (sentence := _describe_part(part, now, decoded.text))]
    more = f" ... and {len(said) - _MAX_PARTS} more." if len(said) > _MAX_PARTS else ""
    if not said:
        return " The lines you have read are the same; others changed."
    return "".join(f" {sentence}" for sentence in said[:_MAX_PARTS]) + more


def _describe_part(part: SeenPart, now: list[str], text: str) -> str:
    """What became of lines that were read; empty when they are what they were."""
    if now[part.first - 1 : part.last] == part.lines:
        return ""
    at = f"\n{text}\n".find("\n" + "\n".join(part.lines) + "\n")
    if at < 0:
        return f"Lines {part.first}-{part.last} are different now."
    first = text.count("\n", 0, at) + 1
    return f"Lines {part.first}-{part.last} are now lines {first}-{first + len(part.lines) - 1}."
