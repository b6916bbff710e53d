"""A minimal agent loop in the standard library, the baseline of the benchmarks.

One shell tool, streamed Chat Completions over one connection; no session, no permissions, no user interface.

    floor.py BASE_URL PROMPT
"""

import http.client
import json
import subprocess
import sys
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a shell command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def ask(connection: http.client.HTTPConnection, messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    body = json.dumps({"model": "floor", "stream": True, "messages": messages, "tools": [TOOL]})
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    connection.request("POST", "/v1/chat/completions", body, headers)
    text = ""
    calls: dict[int, dict[str, Any]] = {}
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                function = {"name": "", "arguments": ""}
                call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": function})
                call["id"] += part.get("id") or ""
                for key in ("name", "arguments"):
                    call["function"][key] += part["function"].get(key) or ""
    return text, list(calls.values())


def main() -> None:
    connection = http.client.HTTPConnection(sys.argv[1].split("//")[1])
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": sys.argv[2]},
    ]
    while True:
        text, calls = ask(connection, messages)
        if not calls:
            print(text)
            return
        messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        for call in calls:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})


main()
