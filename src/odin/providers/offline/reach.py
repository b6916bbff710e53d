"""Getting at a file by the name people use for it: as given, and if that is not there, by looking for the name."""

from collections.abc import Callable, Generator

from msgspec import Struct

from odin.core.message import ToolResult
from odin.core.some import some_of
from odin.providers.offline import results
from odin.providers.offline.task import Act, Desk
from odin.providers.offline.vocabulary import looks_like_path
from odin.providers.offline.wording import reason

_SHOWN = 8


class Reached(Struct, frozen=True):
    """Where the path led. `trouble` is the answer when it led nowhere or to several files."""

    path: str
    result: ToolResult
    trouble: str = ""


def reach(
    path: str, desk: Desk, act_for: Callable[[str], Act]
) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], Reached]:
    """Make a call about a path. When there is no such path, and exactly one file of that name, make it about that."""
    full = desk.absolute(path)
    (result,) = yield (act_for(full),)
    inside = desk.shown(full) != full or not path.startswith(("/", "~"))
    if not results.is_missing(result) or not inside or not desk.offers("Glob"):
        return Reached(full, result)
    found = yield from by_name(path, desk)
    if len(found) == 1:
        (result,) = yield (act_for(found[0]),)
        return Reached(found[0], result)
    if not found:
        return Reached(full, result, f"There is no `{path}` here. {_suggestion(result.text)}".rstrip())
    shown = some_of((f"`{desk.shown(item)}`" for item in found), _SHOWN)
    return Reached(full, result, f"There are {len(found)} files called `{path}`: {shown}. Which one do you mean?")


def by_name(path: str, desk: Desk) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], list[str]]:
    """The files of that name anywhere below the working directory."""
    name = path.strip("/").removeprefix("./")
    globs = [f"**/{name}"]
    if "." not in name.rsplit("/", 1)[-1]:
        globs.append(f"**/{name}.*")
        if looks_like_path(name.lower()):
            globs.append(f"**/{name.upper()}*")
    answers = yield tuple(glob_act(glob, desk) for glob in globs)
    found = [item for answer in answers if not answer.is_error for item in results.paths(answer.text)]
    return list(dict.fromkeys(found))


def glob_act(pattern: str, desk: Desk, folder: str = "") -> Act:
    args = {"pattern": pattern}
    if folder or desk.cwd != ".":
        args["path"] = desk.absolute(folder)
    return Act("Glob", args)


def read_act(path: str, first: int = 0, last: int = 0) -> Act:
    if not first:
        return Act("Read", {"file_path": path})
    if not last:
        return Act("Read", {"file_path": path, "offset": first})
    return Act("Read", {"file_path": path, "offset": first, "limit": max(1, last - first + 1)})


def failed(what: str, result: ToolResult) -> str:
    """The plain report of a call that did not work."""
    return f"I could not {what}: {reason(result.text)}"


def _suggestion(text: str) -> str:
    at = text.find("Did you mean")
    return text[at:].strip() if at >= 0 else ""
