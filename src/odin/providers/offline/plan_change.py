"""Plans that change files. Each reads before it writes, and says exactly what it did and did not do."""

import re
from collections.abc import Generator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as replaced

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan_files import Whole, whole_file
from odin.providers.offline.plan_search import grep_act, literal, whole_word
from odin.providers.offline.reach import failed, reach, read_act
from odin.providers.offline.rewrite import edits_for_words
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.wording import counted, not_offered, reason

MAX_FILES = 200
_BATCH = 20
_MAX_TRIES = 4
_SEEN_LINES = 2000

Steps = Generator[tuple[Act, ...], tuple[ToolResult, ...], "list[Change]"]


class Change(Struct, frozen=True):
    """What became of one file: how many places changed, or why none did."""

    path: str
    count: int = 0
    fault: str = ""


def replace(task: Task, desk: Desk) -> Plan:
    """Replace `term` by `new`: in one file, or in every file below a folder that holds it."""
    if task.term == task.new:
        return "Both texts are the same, so there is nothing to replace."
    if not desk.offers("EditTool"):
        return (yield from _preview(task, desk))
    if task.everywhere or not task.path:
        return (yield from _everywhere(task, desk, desk.absolute(task.path)))
    whole = yield from whole_file(task.path, desk)
    if whole.trouble:
        return f"{whole.trouble} Nothing was changed."
    if results.is_folder(whole.result):
        return (yield from _everywhere(task, desk, whole.path))
    if whole.result.is_error:
        return f"{failed(f'read `{desk.shown(whole.path)}`', whole.result)} Nothing was changed."
    changes = yield from _edit([whole], task, desk)
    return _report(replaced(task, path=whole.path), changes, desk)


def _preview(task: Task, desk: Desk) -> Plan:
    """In a mode that changes nothing: what would be replaced, and how to get it done."""
    refusal = not_offered(("EditTool",), desk)
    if not desk.offers("Grep"):
        return refusal
    reached = yield from reach(task.path, desk, lambda path: grep_act(_pattern(task), path, task, "count"))
    if reached.trouble:
        return f"{refusal} {reached.trouble}"
    counts = {} if reached.result.is_error else results.counts(reached.result.text, reached.path)
    if not counts:
        return refusal
    places = f"{counted(sum(counts.values()), 'line')} in {counted(len(counts), 'file')}"
    names = ", ".join(f"`{desk.shown(path)}`" for path in list(counts)[:10])
    return f"{refusal} There I would replace `{task.term}` with `{task.new}` on {places}: {names}."


def _pattern(task: Task) -> str:
    return whole_word(task.term) if task.how == "word" else literal(task.term)


def _everywhere(task: Task, desk: Desk, folder: str) -> Plan:
    (found,) = yield (grep_act(_pattern(task), folder, task, "files_with_matches", MAX_FILES + 1),)
    if found.is_error:
        return f"{failed(f'search for `{task.term}`', found)} Nothing was changed."
    paths = results.paths(found.text)
    if len(paths) > MAX_FILES:
        return (
            f"`{task.term}` is in more than {MAX_FILES} files, so I changed nothing. Name a folder or a kind of file."
        )
    changes: list[Change] = []
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        answers = yield tuple(read_act(desk.absolute(path)) for path in batch)
        wholes = [
            Whole(desk.absolute(path), answer, page=results.page(answer.text))
            for path, answer in zip(batch, answers, strict=True)
        ]
        changes += yield from _edit(wholes, task, desk)
    return _report(task, changes, desk)


def _edit(files: Sequence[Whole], task: Task, desk: Desk) -> Steps:
    """Edit files that were read, all in one reply. Lines that were not seen yet are looked at first."""
    done = [Change(file.path, fault=reason(file.result.text)) for file in files if file.result.is_error]
    readable = yield from _read_on([file for file in files if not file.result.is_error], task, desk)
    acts: dict[str, tuple[Act, ...]] = {}
    words: dict[str, int] = {}
    for file in readable:
        made = _acts(file, task, desk)
        if isinstance(made, str):
            done.append(Change(file.path, fault=made))
        elif made:
            acts[file.path] = made
            words[file.path] = 0 if "replace_all" in made[0].args else len(_words(task.term, file.page.text))
    for _ in range(_MAX_TRIES):
        if not acts:
            break
        finished, unseen = yield from _apply(acts)
        done += [replaced(each, count=words[each.path] or each.count) if each.count else each for each in finished]
        acts = {path: acts[path] for path in unseen}
        if unseen:
            yield tuple(read_act(path, *lines) for path, lines in unseen.items())
    return done + [Change(path, fault="too many parts of it were not read yet") for path in acts]


def _read_on(
    files: list[Whole], task: Task, desk: Desk
) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], list[Whole]]:
    """See to it that the lines to change have been seen. A word needs all of the file, a plain text only its lines."""
    partial = [file for file in files if not file.complete]
    if task.how == "word":
        rest: dict[str, Whole] = {}
        for file in partial:
            rest[file.path] = yield from whole_file(file.path, desk)
        return [rest.get(file.path, file) for file in files]
    if partial and desk.offers("Grep"):
        plain = Task("search", task.term)
        yield tuple(grep_act(_pattern(task), file.path, plain, "content", _SEEN_LINES) for file in partial)
    return files


def _acts(file: Whole, task: Task, desk: Desk) -> tuple[Act, ...] | str:
    """The calls that change one file, none when it does not hold the text, or why it cannot be done."""
    text = file.page.text
    inside_words = len(_words(task.term, text)) != text.count(task.term) or not file.complete
    if task.how == "word" and inside_words and re.fullmatch(r"\w+", task.term):
        return _word_acts(file, task, desk)
    if file.complete and task.term not in text and "... [line cut: " not in text:
        return ()
    args = {"file_path": file.path, "old_string": task.term, "new_string": task.new, "replace_all": True}
    return (Act("EditTool", args),)


def _words(term: str, text: str) -> list[str]:
    return re.findall(whole_word(term), text)


def _word_acts(file: Whole, task: Task, desk: Desk) -> tuple[Act, ...] | str:
    """The term also stands inside longer words, which stay: only the lines with the word itself are rewritten."""
    if not file.complete:
        return "the file is too large to rename a word in it safely"
    edits = edits_for_words(file.page.text, task.term, task.new)
    if not edits:
        return ()
    if len(edits) > 1 and desk.offers("MultiEditTool"):
        listed = [{"old_string": old, "new_string": new} for old, new in edits]
        return (Act("MultiEditTool", {"file_path": file.path, "edits": listed}),)
    return tuple(Act("EditTool", {"file_path": file.path, "old_string": old, "new_string": new}) for old, new in edits)


def _apply(
    acts: dict[str, tuple[Act, ...]],
) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], tuple[list[Change], dict[str, tuple[int, int]]]]:
    """Make the calls. A file of which lines must be read first comes back with those lines."""
    answers = list((yield tuple(act for group in acts.values() for act in group)))
    done: list[Change] = []
    unseen: dict[str, tuple[int, int]] = {}
    for path, group in acts.items():
        own, answers = answers[: len(group)], answers[len(group) :]
        lines = next((found for answer in own if answer.is_error and (found := _lines_to_read(answer.text))), None)
        if lines and len(group) == 1:
            unseen[path] = lines
            continue
        fault = next((reason(answer.text) for answer in own if answer.is_error and not _absent(answer.text)), "")
        count = sum(_replacements(answer.text) for answer in own if not answer.is_error)
        done.append(Change(path, count, fault))
    return done, unseen


def _lines_to_read(text: str) -> tuple[int, int] | None:
    found = re.search(r"read lines (\d+)-(\d+) first", text, re.IGNORECASE)
    return (max(1, int(found[1]) - 5), int(found[2]) + 200) if found else None


def _absent(text: str) -> bool:
    return text.startswith("old_string was not found")


def _replacements(text: str) -> int:
    found = re.search(r"(\d+) (?:replacements?|occurrences?)", text)
    return int(found[1]) if found else 1


def _report(task: Task, changes: list[Change], desk: Desk) -> str:
    done = [change for change in changes if change.count]
    faults = [change for change in changes if change.fault]
    if not done and not faults:
        where = f" in `{desk.shown(desk.absolute(task.path))}`" if task.path else ""
        return f"`{task.term}` does not occur{where}, so nothing was changed."
    lines: list[str] = []
    if done:
        total = counted(sum(change.count for change in done), "occurrence")
        verb = f"Replaced `{task.term}` with `{task.new}`" if task.new else f"Removed `{task.term}`"
        where = f"in `{desk.shown(done[0].path)}`" if len(done) == 1 else f"in {len(done)} files"
        lines.append(f"{verb}: {total} {where}.")
        if len(done) > 1:
            lines += ["", *(f"- {desk.shown(change.path)}: {change.count}" for change in done[:60])]
    if faults:
        lines += [""] if done else ["Nothing was changed."]
        if len(faults) > 1 and len({change.fault for change in faults}) == 1:
            lines.append(f"{len(faults)} files were not changed: {faults[0].fault}")
        else:
            lines += [f"`{desk.shown(change.path)}` was not changed: {change.fault}" for change in faults[:20]]
    return "\n".join(lines)


def create(task: Task, desk: Desk) -> Plan:
    """Write a new file. What is already there is overwritten only when that was asked for in so many words."""
    if not desk.offers("WriteFile"):
        return not_offered(("WriteFile",), desk)
    full = desk.absolute(task.path)
    name = desk.shown(full)
    (before,) = yield (read_act(full),)
    exists = not before.is_error and not results.is_empty(before)
    if exists and task.how != "overwrite":
        size = counted(results.page(before.text).total, "line")
        return (
            f"`{name}` already exists ({size}), so I left it alone. Say \"overwrite {name} with '…'\" to replace "
            "all of it, "
            f"or \"append '…' to {name}\" to add to it."
        )
    if before.is_error and not results.is_missing(before):
        return failed(f"create `{name}`", before)
    content = task.new if not task.new or task.new.endswith("\n") else task.new + "\n"
    if results.is_empty(before) and not content:
        return f"`{name}` already exists and is empty."
    (written,) = yield (Act("WriteFile", {"file_path": full, "content": content}),)
    if written.is_error:
        return failed(f"write `{name}`", written)
    lines = counted(content.count("\n"), "line")
    if exists:
        return f"Overwrote `{name}` ({lines}; it had {results.page(before.text).total})."
    return f"Created `{name}` ({lines})." if content else f"Created the empty file `{name}`."


def append(task: Task, desk: Desk) -> Plan:
    """Add lines at the end of a file, which is created when it is not there."""
    if not desk.offers("WriteFile", "EditTool"):
        return not_offered(("WriteFile", "EditTool"), desk)
    full = desk.absolute(task.path)
    (first,) = yield (read_act(full),)
    content = task.new if task.new.endswith("\n") else task.new + "\n"
    if results.is_missing(first) or results.is_empty(first):
        (written,) = yield (Act("WriteFile", {"file_path": full, "content": content}),)
        if written.is_error:
            return failed(f"write `{desk.shown(full)}`", written)
        was = "empty" if results.is_empty(first) else "not there"
        return f"`{desk.shown(full)}` was {was}; I wrote {_lines(content)} to it."
    if first.is_error:
        return failed(f"append to `{desk.shown(full)}`", first)
    page = results.page(first.text)
    if page.last < page.total:
        (end,) = yield (read_act(full, max(1, page.total - 50), page.total),)
        page = results.page(end.text)
    tail = unique_tail([line for _, line in page.lines])
    if not tail or page.last < page.total:
        return f"I could not find the end of `{desk.shown(full)}`, so nothing was changed."
    args = {"file_path": full, "old_string": tail, "new_string": f"{tail}\n{content.removesuffix(chr(10))}"}
    (edited,) = yield (Act("EditTool", args),)
    if edited.is_error:
        return failed(f"append to `{desk.shown(full)}`", edited)
    return f"Appended {_lines(content)} to `{desk.shown(full)}`."


def _lines(content: str) -> str:
    return counted(max(1, content.count("\n")), "line")


def unique_tail(lines: list[str]) -> str:
    """The fewest last lines that occur only once in the text."""
    text = "\n".join(lines)
    for size in range(1, len(lines) + 1):
        tail = "\n".join(lines[-size:])
        if tail.strip() and len(re.findall(f"(?={re.escape(tail)})", text)) == 1:
            return tail
    return ""


def delete(task: Task, desk: Desk) -> Plan:
    full = desk.absolute(task.path)
    name = desk.shown(full)
    spec = desk.tools.get("Delete")
    if spec is None:
        return (
            f"I have no tool that deletes files, so `{name}` is still there. Say: run `rm {quoted(name)}` and I "
            "will run that "
            "command, if your rules allow it."
        )
    properties = spec.schema.get("properties", {})
    args: dict[str, Any] = {"paths": [full]} if "paths" in properties else {next(iter(properties), "file_path"): full}
    if "reason" in properties:
        args["reason"] = "asked for by the user"
    (result,) = yield (Act("Delete", args),)
    if result.is_error:
        return failed(f"delete `{name}`", result)
    return f"There is no `{name}`." if result.text.startswith("Already absent") else f"Deleted `{name}`."


def quoted(word: str) -> str:
    """A word as the shell takes it literally."""
    if re.fullmatch(r"[\w@%+=:,./-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
