"""Tool calls, sub-agents and processes as the editor shows them: title, kind, places, text and changed files."""

import os
import re
from collections.abc import Iterator
from typing import Any

from odin.acp.prompts import show_images
from odin.acp.protocol import CallContent, CallDiff, CallFields, CallStatus, CallText, Location, TextContent, ToolKind
from odin.core.tool import get_canonical_name, get_display_name
from odin.ui.clean_text import sanitize, strip_escapes
from odin.ui.transcript.blocks import AgentBlock, CallBlock, CommandBlock, ProcessBlock
from odin.ui.transcript.words import ShownFolders, describe_agent, describe_call, describe_process, is_diff

WorkBlock = CallBlock | AgentBlock | CommandBlock | ProcessBlock

_KINDS: dict[str, ToolKind] = {
    **dict.fromkeys(("Read", "ReadArtifact", "ReadMcpResource", "SpawnStatus"), "read"),
    **dict.fromkeys(("EditTool", "MultiEditTool", "apply_patch", "WriteFile", "AppendFile", "lsp_rename"), "edit"),
    **dict.fromkeys(("Grep", "Glob", "LS", "lsp", "ListMcpResources"), "search"),
    **dict.fromkeys(("ExecuteCommand", "Spawn", "SpawnStop"), "execute"),
    **dict.fromkeys(("WebFetch", "WebSearch"), "fetch"),
    **dict.fromkeys(("AgentTool", "Delegate", "TodoWrite", "Skill", "ContextSummarizer"), "think"),
    "Delete": "delete",
    "Handoff": "switch_mode",
}
_STATUS: dict[str, CallStatus] = {
    **dict.fromkeys(("writing", "queued", "asking"), "pending"),
    "running": "in_progress",
    "success": "completed",
}
_PATH_NAMES = ("file_path", "path", "notebook_path")
_MAX_DIFFS = 100
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def find_kind(name: str) -> ToolKind:
    return _KINDS.get(get_canonical_name(name), "other")


def describe_work(
    block: WorkBlock, agent: str, id: str, folders: ShownFolders, args: dict[str, Any] | None = None
) -> CallFields:
    """Return all that is shown of a call, a sub-agent, a `!` command or a background process.

    `args` are those of the call that started a sub-agent.
    """
    match block:
        case CallBlock():
            title = " ".join(filter(None, (get_display_name(block.name), describe_call(block, folders))))
            return CallFields(
                tool_call_id=id,
                title=f"{agent}: {title}" if agent else title,
                kind=find_kind(block.name),
                status=_STATUS.get(block.state, "failed"),
                content=tuple(_list_content(block, folders)),
                locations=tuple(list_locations(block.args, block.view, folders.cwd)),
                raw_input=block.args,
            )
        case AgentBlock():
            state, is_good = describe_agent(block)
            text = block.answer or block.note or " · ".join(filter(None, (state, block.doing)))
            return CallFields(
                tool_call_id=id,
                title=f"{block.key}: {block.description or block.task}",
                kind="think",
                status="in_progress" if is_good is None else "completed" if is_good else "failed",
                content=(make_text(text),),
                locations=(),
                raw_input={"task": block.task} if args is None else args,
            )
        case CommandBlock():
            return CallFields(
                tool_call_id=id,
                title=f"!{block.command}",
                kind="execute",
                status="in_progress" if block.live else "completed",
                content=tuple(_quote(block.output or "\n".join(block.tail))),
                locations=(),
                raw_input={"command": block.command},
            )
        case ProcessBlock():
            is_failed = block.status in ("failed", "timed_out")
            return CallFields(
                tool_call_id=id,
                title=f"{block.key}: {block.description or block.command}",
                kind="execute",
                status="in_progress" if not block.status else "failed" if is_failed else "completed",
                content=(make_text(describe_process(block)), *_quote(block.output)),
                locations=(),
                raw_input={"command": block.command},
            )


def make_text(text: str) -> CallText:
    return CallText(content=TextContent(text=text))


def _quote(text: str) -> Iterator[CallText]:
    """Yield the text as a code block, which nothing in it ends. Editors show content as Markdown."""
    text = sanitize(strip_escapes(text)).strip("\n")
    if text:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield make_text(f"{fence}\n{text}\n{fence}")


def quote(text: str) -> tuple[CallText, ...]:
    return tuple(_quote(text))


def _list_content(block: CallBlock, folders: ShownFolders) -> Iterator[CallContent]:
    if block.explanation:
        yield make_text(block.explanation)
    if block.state == "denied" and block.explanation:
        return  # the rest is for the model
    if block.view and is_diff(block.view):
        yield from list_diffs(block.view, folders.cwd)
    else:
        yield from _quote(block.view or block.result or "\n".join(block.tail))
    for text in (block.for_user, block.aside):
        if text:
            yield make_text(strip_escapes(text))
    for image in show_images(block.images):
        yield CallText(content=image)


def list_diffs(text: str, cwd: str) -> Iterator[CallDiff]:
    """Yield the hunks of a unified diff, each as the lines before and after.

    Lines are counted as the header of a hunk says, so that no line of a file is taken for a header.
    """
    path, count, lines = "", 0, text.split("\n")
    at = 0
    while at < len(lines) and count < _MAX_DIFFS:
        line = lines[at]
        at += 1
        if line.startswith("+++ ") or (line.startswith("--- ") and not path):
            path = line[4:]
        found = _HUNK.match(line) if path else None
        if found is None:
            continue
        old_left, new_left = int(found[1] or 1), int(found[3] or 1)
        is_new = found[1] == "0" and line.startswith("@@ -0")
        old: list[str] = []
        new: list[str] = []
        mark = ""
        while at < len(lines) and (old_left > 0 or new_left > 0 or lines[at].startswith("\\")):
            if lines[at].startswith("\\"):  # no line break at the end of the file
                for part, marks in ((old, "- "), (new, "+ ")):
                    if part and mark in marks:
                        part[-1] = part[-1][:-1]
            elif (mark := lines[at][:1]) in ("-", "+", " ") and mark:
                if mark in "- ":
                    old.append(f"{lines[at][1:]}\n")
                    old_left -= 1
                if mark in "+ ":
                    new.append(f"{lines[at][1:]}\n")
                    new_left -= 1
            else:
                break  # the diff was cut
            at += 1
        count += 1
        before, after = "".join(old), "".join(new)
        where = _resolve(path, cwd)
        yield CallDiff(path=where, new_text=after) if is_new else CallDiff(path=where, new_text=after, old_text=before)


def _resolve(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd or "/", path))  # noqa: PTH118


def list_locations(args: dict[str, Any], diff: str, cwd: str) -> Iterator[Location]:
    """Yield the files of a call: those of its arguments, and those that its diff changes, each with its first line."""
    lines: dict[str, int] = {}
    for name in _PATH_NAMES:
        if isinstance(path := args.get(name), str) and path:
            offset = args.get("offset")
            lines[_resolve(path, cwd)] = offset if isinstance(offset, int) and offset > 0 else 0
    if is_diff(diff):
        for path, start in re.findall(r"(?m)^\+\+\+ (.+)\n@@ -\S+ \+(\d+)", diff):
            lines[_resolve(path, cwd)] = int(start)
    for path, line in lines.items():
        yield Location(path=path, line=line) if line else Location(path=path)
