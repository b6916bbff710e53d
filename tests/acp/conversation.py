"""Conversations between an editor and Odin as JSON lines that are the same in every run.

`{"to": "odin", …}` are messages of the editor. What differs from run to run has a placeholder: ids, folders, times.
Updates between two other messages are merged, because how many there are depends on timing. So does when facts are
told, such as the use of tokens: of these the last ones stand at the end.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Line = tuple[str, Message]

FOLDER = Path(__file__).parent / "recordings"
_CHUNKS = ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk")
_FACTS = ("usage_update", "session_info_update", "available_commands_update", "config_option_update", "plan")
_SHOWN_COMMANDS = 3
TITLE = "A better name"
"""Other titles are made by Odin at some time after a prompt."""


def normalize(messages: Sequence[Line], workspace: Path) -> list[Line]:
    """Return the conversation with merged updates and placeholders."""
    merged: list[Line] = []
    batch: list[Message] = []
    facts: dict[str, Message] = {}
    for direction, message in messages:
        if message.get("method") != "session/update":
            merged += [("<", one) for one in _merge(batch)]
            batch = []
            merged.append((direction, message))
        elif (kind := message["params"]["update"]["sessionUpdate"]) not in _FACTS:
            batch.append(message)
        elif _is_certain(message["params"]["update"]):
            facts[kind] = message
    merged += [("<", one) for one in (*_merge(batch), *(facts[kind] for kind in _FACTS if kind in facts))]
    names = list_names(messages, workspace)
    return [(direction, json.loads(_replace(json.dumps(_shorten(message)), names))) for direction, message in merged]


def _is_certain(fact: Message) -> bool:
    """True for a fact that is told in every run: a setting may come only in the answer of the request that set it."""
    kind = fact["sessionUpdate"]
    return fact.get("title") == TITLE if kind == "session_info_update" else kind != "config_option_update"


def drop_facts(lines: Sequence[Line]) -> list[Line]:
    """Return the part of a normalized conversation that comes in the same order in every run."""
    return [line for line in lines if line[1].get("params", {}).get("update", {}).get("sessionUpdate") not in _FACTS]


def list_names(messages: Iterable[Line], workspace: Path) -> dict[str, str]:
    """Return what has a placeholder in these messages."""
    names = {str(workspace): "$WORKSPACE", f"{workspace.parent}/": "$BESIDE/"}
    names |= {str(Path(__file__).parents[1]): "$TESTS", sys.executable: "$PYTHON"}
    for _, message in messages:
        result: Message = message.get("result") or {}
        for session in result.get("sessions", [result]):
            if "sessionId" in session:
                names.setdefault(session["sessionId"], f"$SESSION{len(names) - 3}")
    return names


def _replace(text: str, names: dict[str, str]) -> str:
    for name, placeholder in sorted(names.items(), key=lambda item: -len(item[0])):
        text = text.replace(name, placeholder)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "$TIME", text)
    text = re.sub(r'"messageId": "[0-9a-f]{12}"', '"messageId": "$ID"', text)
    text = re.sub(r'"(version|nextCursor|cursor)": "[^"]+"', r'"\1": "$VALUE"', text)
    return re.sub(r'"(used|amount)": [0-9.e-]+', r'"\1": 1', text)


def _shorten(message: Message) -> Message:
    """Leave out what only fills the file: models and commands."""
    holder: Message = message.get("result") or message.get("params", {}).get("update") or {}
    if "availableCommands" in holder:
        holder["availableCommands"] = holder["availableCommands"][:_SHOWN_COMMANDS]
    for option in holder.get("configOptions", ()):
        if option["id"] == "model":
            option["options"] = [one for one in option["options"] if one["value"] == option["currentValue"]]
    return message


def _merge(batch: Sequence[Message]) -> list[Message]:
    found: dict[Any, Message] = {}
    for message in json.loads(json.dumps(batch)):
        update = message["params"]["update"]
        kind = update["sessionUpdate"]
        if kind in _CHUNKS and update["content"]["type"] == "text":
            key = kind, update["messageId"]
            if key in found:
                found[key]["params"]["update"]["content"]["text"] += update["content"]["text"]
                continue
        elif kind in ("tool_call", "tool_call_update"):
            key = "call", update["toolCallId"]
            if key in found:
                found[key]["params"]["update"] |= {
                    **update,
                    "sessionUpdate": found[key]["params"]["update"]["sessionUpdate"],
                }
                continue
        else:
            key = kind, len(found)
        found[key] = message
    return list(found.values())


def write(name: str, lines: Sequence[Line]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = "".join(
        json.dumps({"to": "odin" if way == ">" else "editor", **line}, sort_keys=True) + "\n" for way, line in lines
    )
    (FOLDER / f"{name}.jsonl").write_text(text)


def read(name: str) -> list[Line]:
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
    return [(">" if line.pop("to") == "odin" else "<", line) for line in lines]
