"""Plans that change files. Each reads before it writes, and reports exactly what it did and did not do.

Renaming a word uses exact edits: each changed run of lines, with enough surrounding lines to be unique.
"""

import re
from collections.abc import Generator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as replaced

from odin.core.format import count_of
from odin.core.message import ToolResult
from odin.core.path_names import quote_path
from odin.providers.offline import results
from odin.providers.offline.read_plans import (
    WholeFile,
    call_on_path,
    escape_literal,
    make_grep_call,
    make_read_call,
    match_whole_word,
    read_whole_file,
    report_failure,
)
from odin.providers.offline.task import (
    Plan,
    PlanContext,
    PlannedCall,
    PlannerTask,
    explain_not_offered,
    extract_reason,
)


def build_word_edits(text: str, old: str, new: str) -> list[tuple[str, str]]:
    """Return pairs of exact texts that, applied in order, replace `old` wherever it is a whole word."""
    word = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    lines = text.split("\n")
    edits: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        if not word.search(lines[at]):
            at += 1
            continue
        end = at
        while end + 1 < len(lines) and word.search(lines[end + 1]):
            end += 1
        first, last = _widen_to_unique(lines, at, end)
        before = "\n".join(lines[first : last + 1])
        for number in range(at, end + 1):
            lines[number] = word.sub(lambda _: new, lines[number])
        edits.append((before, "\n".join(lines[first : last + 1])))
        at = end + 1
    return edits


def _widen_to_unique(lines: list[str], first: int, last: int) -> tuple[int, int]:
    """Widen a run of lines, above and below in turn, until its text occurs only once."""
    text = "\n".join(lines)
    while first > 0 or last < len(lines) - 1:
        part = "\n".join(lines[first : last + 1])
        if len(re.findall(f"(?={re.escape(part)})", text)) == 1:
            break
        if first > 0:
            first -= 1
        if last < len(lines) - 1:
            last += 1
    return first, last


MAX_FILES = 200
_FILES_PER_BATCH = 20
_MAX_TRIES = 4
_MAX_SEEN_LINES = 2000

EditSteps = Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], "list[EditOutcome]"]


class EditOutcome(Struct, frozen=True):
    """The outcome for one file: how many places changed, or why none did."""

    path: str
    count: int = 0
    error: str = ""


def plan_replace(task: PlannerTask, context: PlanContext) -> Plan:
    """Replace `term` with `new` in one file, or in every matching file below a folder."""
    if task.term == task.new:
        return "Both texts are the same, so there is nothing to replace."
    if not context.has_tools("EditTool"):
        return (yield from _preview_replace(task, context))
    if task.everywhere or not task.path:
        return (yield from _replace_everywhere(task, context, context.resolve_path(task.path)))
    whole = yield from read_whole_file(task.path, context)
    if whole.problem:
        return f"{whole.problem} Nothing was changed."
    if results.is_folder(whole.result):
        return (yield from _replace_everywhere(task, context, whole.path))
    if whole.result.is_error:
        return f"{report_failure(f'read `{context.display_path(whole.path)}`', whole.result)} Nothing was changed."
    changes = yield from _edit_files([whole], task, context)
    return _report_edits(replaced(task, path=whole.path), changes, context)


def _preview_replace(task: PlannerTask, context: PlanContext) -> Plan:
    """In a read-only mode, report what would be replaced and how to do it."""
    refusal = explain_not_offered(("EditTool",), context)
    if not context.has_tools("Grep"):
        return refusal
    reached = yield from call_on_path(
        task.path, context, lambda path: make_grep_call(_replace_pattern_of(task), path, task, "count")
    )
    if reached.problem:
        return f"{refusal} {reached.problem}"
    counts = {} if reached.result.is_error else results.parse_counts(reached.result.text, reached.path)
    if not counts:
        return refusal
    places = f"{count_of(sum(counts.values()), 'line')} in {count_of(len(counts), 'file')}"
    names = ", ".join(f"`{context.display_path(path)}`" for path in list(counts)[:10])
    return f"{refusal} There I would replace `{task.term}` with `{task.new}` on {places}: {names}."


def _replace_pattern_of(task: PlannerTask) -> str:
    return match_whole_word(task.term) if task.variant == "word" else escape_literal(task.term)


def _replace_everywhere(task: PlannerTask, context: PlanContext, folder: str) -> Plan:
    (found,) = yield (make_grep_call(_replace_pattern_of(task), folder, task, "files_with_matches", MAX_FILES + 1),)
    if found.is_error:
        return f"{report_failure(f'search for `{task.term}`', found)} Nothing was changed."
    paths = results.parse_paths(found.text)
    if len(paths) > MAX_FILES:
        return (
            f"`{task.term}` is in more than {MAX_FILES} files, so I changed nothing. Name a folder or a kind of file."
        )
    changes: list[EditOutcome] = []
    for start in range(0, len(paths), _FILES_PER_BATCH):
        batch = paths[start : start + _FILES_PER_BATCH]
        answers = yield tuple(make_read_call(context.resolve_path(path)) for path in batch)
        wholes = [
            WholeFile(context.resolve_path(path), answer, page=results.parse_page(answer.text))
            for path, answer in zip(batch, answers, strict=True)
        ]
        changes += yield from _edit_files(wholes, task, context)
    return _report_edits(task, changes, context)


def _edit_files(files: Sequence[WholeFile], task: PlannerTask, context: PlanContext) -> EditSteps:
    """Edit files that were read, all in one reply. Unseen lines are read first."""
    done = [EditOutcome(file.path, error=extract_reason(file.result.text)) for file in files if file.result.is_error]
    readable = yield from _read_unseen([file for file in files if not file.result.is_error], task, context)
    acts: dict[str, tuple[PlannedCall, ...]] = {}
    words: dict[str, int] = {}
    for file in readable:
        made = _build_edit_calls(file, task, context)
        if isinstance(made, str):
            done.append(EditOutcome(file.path, error=made))
        elif made:
            acts[file.path] = made
            words[file.path] = 0 if "replace_all" in made[0].args else len(_find_words(task.term, file.page.text))
    for _ in range(_MAX_TRIES):
        if not acts:
            break
        finished, unseen = yield from _apply_edits(acts)
        done += [replaced(each, count=words[each.path] or each.count) if each.count else each for each in finished]
        acts = {path: acts[path] for path in unseen}
        if unseen:
            yield tuple(make_read_call(path, *lines) for path, lines in unseen.items())
    return done + [EditOutcome(path, error="too many parts of it were not read yet") for path in acts]


def _read_unseen(
    files: list[WholeFile], task: PlannerTask, context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[WholeFile]]:
    """Read the lines to change. Replacing a word needs the whole file, a plain text only its lines."""
    partial = [file for file in files if not file.is_complete]
    if task.variant == "word":
        rest: dict[str, WholeFile] = {}
        for file in partial:
            rest[file.path] = yield from read_whole_file(file.path, context)
        return [rest.get(file.path, file) for file in files]
    if partial and context.has_tools("Grep"):
        plain = PlannerTask("search", task.term)
        yield tuple(
            make_grep_call(_replace_pattern_of(task), file.path, plain, "content", _MAX_SEEN_LINES) for file in partial
        )
    return files


def _build_edit_calls(file: WholeFile, task: PlannerTask, context: PlanContext) -> tuple[PlannedCall, ...] | str:
    """Return the calls that change one file, none if it does not contain the text, or why it cannot be done."""
    text = file.page.text
    inside_words = len(_find_words(task.term, text)) != text.count(task.term) or not file.is_complete
    if task.variant == "word" and inside_words and re.fullmatch(r"\w+", task.term):
        return _build_word_calls(file, task, context)
    if file.is_complete and task.term not in text and "... [line cut: " not in text:
        return ()
    args = {"file_path": file.path, "old_string": task.term, "new_string": task.new, "replace_all": True}
    return (PlannedCall("EditTool", args),)


def _find_words(term: str, text: str) -> list[str]:
    return re.findall(match_whole_word(term), text)


def _build_word_calls(file: WholeFile, task: PlannerTask, context: PlanContext) -> tuple[PlannedCall, ...] | str:
    """Rewrite only lines with the whole word, because the term also occurs inside longer words."""
    if not file.is_complete:
        return "the file is too large to rename a word in it safely"
    edits = build_word_edits(file.page.text, task.term, task.new)
    if not edits:
        return ()
    if len(edits) > 1 and context.has_tools("MultiEditTool"):
        listed = [{"old_string": old, "new_string": new} for old, new in edits]
        return (PlannedCall("MultiEditTool", {"file_path": file.path, "edits": listed}),)
    return tuple(
        PlannedCall("EditTool", {"file_path": file.path, "old_string": old, "new_string": new}) for old, new in edits
    )


def _apply_edits(
    acts: dict[str, tuple[PlannedCall, ...]],
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], tuple[list[EditOutcome], dict[str, tuple[int, int]]]]:
    """Make the calls. Return the files that must be read further first, with the lines to read."""
    answers = list((yield tuple(act for group in acts.values() for act in group)))
    done: list[EditOutcome] = []
    unseen: dict[str, tuple[int, int]] = {}
    for path, group in acts.items():
        own, answers = answers[: len(group)], answers[len(group) :]
        lines = next(
            (found for answer in own if answer.is_error and (found := _parse_lines_to_read(answer.text))), None
        )
        if lines and len(group) == 1:
            unseen[path] = lines
            continue
        fault = next(
            (extract_reason(answer.text) for answer in own if answer.is_error and not _is_absent(answer.text)), ""
        )
        count = sum(_count_replacements(answer.text) for answer in own if not answer.is_error)
        done.append(EditOutcome(path, count, fault))
    return done, unseen


def _parse_lines_to_read(text: str) -> tuple[int, int] | None:
    found = re.search(r"read lines (\d+)-(\d+) first", text, re.IGNORECASE)
    return (max(1, int(found[1]) - 5), int(found[2]) + 200) if found else None


def _is_absent(text: str) -> bool:
    return text.startswith("old_string was not found")


def _count_replacements(text: str) -> int:
    found = re.search(r"(\d+) (?:replacements?|occurrences?)", text)
    return int(found[1]) if found else 1


def _report_edits(task: PlannerTask, changes: list[EditOutcome], context: PlanContext) -> str:
    done = [change for change in changes if change.count]
    faults = [change for change in changes if change.error]
    if not done and not faults:
        where = f" in `{context.display_path(context.resolve_path(task.path))}`" if task.path else ""
        return f"`{task.term}` does not occur{where}, so nothing was changed."
    lines: list[str] = []
    if done:
        total = count_of(sum(change.count for change in done), "occurrence")
        verb = f"Replaced `{task.term}` with `{task.new}`" if task.new else f"Removed `{task.term}`"
        where = f"in `{context.display_path(done[0].path)}`" if len(done) == 1 else f"in {len(done)} files"
        lines.append(f"{verb}: {total} {where}.")
        if len(done) > 1:
            lines += ["", *(f"- {context.display_path(change.path)}: {change.count}" for change in done[:60])]
    if faults:
        lines += [""] if done else ["Nothing was changed."]
        if len(faults) > 1 and len({change.error for change in faults}) == 1:
            lines.append(f"{len(faults)} files were not changed: {faults[0].error}")
        else:
            lines += [
                f"`{context.display_path(change.path)}` was not changed: {change.error}" for change in faults[:20]
            ]
    return "\n".join(lines)


def plan_create(task: PlannerTask, context: PlanContext) -> Plan:
    """Write a new file. An existing file is overwritten only if the request says so."""
    if not context.has_tools("WriteFile"):
        return explain_not_offered(("WriteFile",), context)
    full = context.resolve_path(task.path)
    name = context.display_path(full)
    (before,) = yield (make_read_call(full),)
    exists = not before.is_error and not results.is_empty(before)
    if exists and task.variant != "overwrite":
        size = count_of(results.parse_page(before.text).total, "line")
        return (
            f"`{name}` already exists ({size}), so I left it alone. Say \"overwrite {name} with '…'\" to replace "
            "all of it, "
            f"or \"append '…' to {name}\" to add to it."
        )
    if before.is_error and not results.is_missing(before):
        return report_failure(f"create `{name}`", before)
    content = task.new if not task.new or task.new.endswith("\n") else task.new + "\n"
    if results.is_empty(before) and not content:
        return f"`{name}` already exists and is empty."
    (written,) = yield (PlannedCall("WriteFile", {"file_path": full, "content": content}),)
    if written.is_error:
        return report_failure(f"write `{name}`", written)
    lines = count_of(content.count("\n"), "line")
    if exists:
        return f"Overwrote `{name}` ({lines}; it had {results.parse_page(before.text).total})."
    return f"Created `{name}` ({lines})." if content else f"Created the empty file `{name}`."


def plan_append(task: PlannerTask, context: PlanContext) -> Plan:
    """Append lines to a file, creating it if needed."""
    if not context.has_tools("WriteFile", "EditTool"):
        return explain_not_offered(("WriteFile", "EditTool"), context)
    full = context.resolve_path(task.path)
    (first,) = yield (make_read_call(full),)
    content = task.new if task.new.endswith("\n") else task.new + "\n"
    if results.is_missing(first) or results.is_empty(first):
        (written,) = yield (PlannedCall("WriteFile", {"file_path": full, "content": content}),)
        if written.is_error:
            return report_failure(f"write `{context.display_path(full)}`", written)
        was = "empty" if results.is_empty(first) else "not there"
        return f"`{context.display_path(full)}` was {was}; I wrote {_format_line_count(content)} to it."
    if first.is_error:
        return report_failure(f"append to `{context.display_path(full)}`", first)
    page = results.parse_page(first.text)
    if page.last < page.total:
        (end,) = yield (make_read_call(full, max(1, page.total - 50), page.total),)
        page = results.parse_page(end.text)
    tail = find_unique_tail([line for _, line in page.lines])
    if not tail or page.last < page.total:
        return f"I could not find the end of `{context.display_path(full)}`, so nothing was changed."
    args = {"file_path": full, "old_string": tail, "new_string": f"{tail}\n{content.removesuffix(chr(10))}"}
    (edited,) = yield (PlannedCall("EditTool", args),)
    if edited.is_error:
        return report_failure(f"append to `{context.display_path(full)}`", edited)
    return f"Appended {_format_line_count(content)} to `{context.display_path(full)}`."


def _format_line_count(content: str) -> str:
    return count_of(max(1, content.count("\n")), "line")


def find_unique_tail(lines: list[str]) -> str:
    """Return the fewest last lines that occur only once in the text."""
    text = "\n".join(lines)
    for size in range(1, len(lines) + 1):
        tail = "\n".join(lines[-size:])
        if tail.strip() and len(re.findall(f"(?={re.escape(tail)})", text)) == 1:
            return tail
    return ""


def plan_delete(task: PlannerTask, context: PlanContext) -> Plan:
    full = context.resolve_path(task.path)
    name = context.display_path(full)
    spec = context.tools.get("Delete")
    if spec is None:
        return (
            f"I have no tool that deletes files, so `{name}` is still there. Say: run `rm {quote_path(name)}` and "
            "I will run that command, if your rules allow it."
        )
    properties = spec.schema.get("properties", {})
    args: dict[str, Any] = {"paths": [full]} if "paths" in properties else {next(iter(properties), "file_path"): full}
    if "reason" in properties:
        args["reason"] = "asked for by the user"
    (result,) = yield (PlannedCall("Delete", args),)
    if result.is_error:
        return report_failure(f"delete `{name}`", result)
    return f"There is no `{name}`." if result.text.startswith("Already absent") else f"Deleted `{name}`."
