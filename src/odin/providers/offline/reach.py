"""Getting at a file by the name people use for it: as given, and if that is not there, by looking for the name."""

from collections.abc import Callable, Generator

from msgspec import Struct

from odin.core.message import ToolResult
from odin.core.some import join_some
from odin.providers.offline import results
from odin.providers.offline.task import PlanContext, PlannedCall
from odin.providers.offline.vocabulary import is_path_like
from odin.providers.offline.wording import extract_reason

_MAX_CANDIDATES = 8


class PathResult(Struct, frozen=True):
    """Where the path led. `trouble` is the answer when it led nowhere or to several files."""

    path: str
    result: ToolResult
    problem: str = ""


def call_on_path(
    path: str, desk: PlanContext, make_call: Callable[[str], PlannedCall]
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], PathResult]:
    """Make a call about a path. When there is no such path, and exactly one file of that name, make it about that."""
    full = desk.resolve_path(path)
    (result,) = yield (make_call(full),)
    inside = desk.display_path(full) != full or not path.startswith(("/", "~"))
    if not results.is_missing(result) or not inside or not desk.has_tools("Glob"):
        return PathResult(full, result)
    found = yield from find_by_name(path, desk)
    if len(found) == 1:
        (result,) = yield (make_call(found[0]),)
        return PathResult(found[0], result)
    if not found:
        return PathResult(full, result, f"There is no `{path}` here. {_extract_suggestion(result.text)}".rstrip())
    shown = join_some((f"`{desk.display_path(item)}`" for item in found), _MAX_CANDIDATES)
    return PathResult(full, result, f"There are {len(found)} files called `{path}`: {shown}. Which one do you mean?")


def find_by_name(path: str, desk: PlanContext) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[str]]:
    """The files of that name anywhere below the working directory."""
    name = path.strip("/").removeprefix("./")
    globs = [f"**/{name}"]
    if "." not in name.rsplit("/", 1)[-1]:
        globs.append(f"**/{name}.*")
        if is_path_like(name.lower()):
            globs.append(f"**/{name.upper()}*")
    answers = yield tuple(make_glob_call(glob, desk) for glob in globs)
    found = [item for answer in answers if not answer.is_error for item in results.parse_paths(answer.text)]
    return list(dict.fromkeys(found))


def make_glob_call(pattern: str, desk: PlanContext, folder: str = "") -> PlannedCall:
    args = {"pattern": pattern}
    if folder or desk.cwd != ".":
        args["path"] = desk.resolve_path(folder)
    return PlannedCall("Glob", args)


def make_read_call(path: str, first: int = 0, last: int = 0) -> PlannedCall:
    if not first:
        return PlannedCall("Read", {"file_path": path})
    if not last:
        return PlannedCall("Read", {"file_path": path, "offset": first})
    return PlannedCall("Read", {"file_path": path, "offset": first, "limit": max(1, last - first + 1)})


def report_failure(what: str, result: ToolResult) -> str:
    """The plain report of a call that did not work."""
    return f"I could not {what}: {extract_reason(result.text)}"


def _extract_suggestion(text: str) -> str:
    at = text.find("Did you mean")
    return text[at:].strip() if at >= 0 else ""
