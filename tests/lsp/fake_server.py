"""A fake language server: every `BAD` in a file is an error, words are symbols. Its arguments switch on quirks.

`pull` and `both` give diagnostics on request, `mute` gives none, `stale` and `lies` add outdated and invalid ones, and
`fickle` refuses the first request for them. `loading`, `loads` and `unloaded`: the project is not loaded yet. `asks`
sends requests to the client, `wrong_ids` adds answers to nothing, `outside` edits a file outside the project.
`KIND:METHOD` misbehaves when METHOD arrives, `trace=FILE` logs the messages, `utf-8` and others encode positions.
"""

import contextlib
import json
import os
import re
import sys
import time
from typing import Any

QUIRKS = set(sys.argv[1:])
ENCODING = next((quirk for quirk in QUIRKS if quirk.startswith("utf-")), "")
TRACE = next((quirk.partition("=")[2] for quirk in QUIRKS if quirk.startswith("trace=")), "")
files: dict[str, str] = {}
versions: dict[str, int] = {}


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    if not length:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    if TRACE:
        params: dict[str, Any] = message.get("params") or {}
        changes: list[Any] = params.get("changes", [])
        words = [message.get("method", "answer"), get_name(params.get("textDocument", {}).get("uri", ""))]
        words += [f"{change['type']}{get_name(change['uri'])}" for change in changes]
        with contextlib.suppress(OSError), open(TRACE, "a") as trace:
            trace.write(" ".join(words).strip() + "\n")
    return message


def get_name(uri: str) -> str:
    return uri.rpartition("/")[2]


def count_units(text: str) -> int:
    if ENCODING == "utf-8":
        return len(text.encode())
    return len(text) if ENCODING == "utf-32" else len(text.encode("utf-16-le")) // 2


def find_spans(text: str, word: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text)):
        for match in re.finditer(rf"\b{re.escape(word)}\b", line):
            start, end = count_units(line[: match.start()]), count_units(line[: match.end()])
            at = {"line": number, "character": start}, {"line": number, "character": end}
            found.append({"start": at[0], "end": at[1]})
    return found


def list_diagnostics(uri: str) -> list[Any]:
    found = [
        {"range": span, "message": "bad word", "severity": 1, "code": "B1"} for span in find_spans(files[uri], "BAD")
    ]
    found += [
        {"range": span, "message": "x" * 400, "severity": 1, "code": "L1"} for span in find_spans(files[uri], "LONG")
    ]
    found += [{"range": span, "message": "odd word", "severity": 2} for span in find_spans(files[uri], "ODD")]
    if "lies" in QUIRKS:
        return [None, 7, {"message": 3}, {"range": {"start": {"line": -5, "character": 10**9}, "end": {}}}, *found,
                {"range": {"start": {"line": 10**9, "character": -1}, "end": {"line": 0, "character": 0}},
                 "message": "beyond\x1b[2J\n the end", "severity": 1, "code": ["x"]}]  # fmt: skip
    return found


def publish(uri: str) -> None:
    """Send the diagnostics of a file. With "both", send only those of `WORSE`: the client pulls the others."""
    if "both" in QUIRKS:
        found = find_spans(files[uri], "WORSE")
        send_diagnostics(uri, versions[uri], [{"range": span, "message": "worse word"} for span in found])
        return
    if "pull" in QUIRKS or "mute" in QUIRKS:
        return
    if "stale" in QUIRKS and versions[uri] > 1:
        send_diagnostics(uri, versions[uri] - 1, [])
    send_diagnostics(uri, versions[uri], list_diagnostics(uri))


def send_diagnostics(uri: str, version: int, items: list[Any]) -> None:
    send(
        {"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "version": version, "diagnostics": items}}
    )


def load_project(uri: str) -> dict[str, str]:
    """Return the open files, and the other files of the folder as they are on disk."""
    folder = os.path.dirname(uri.removeprefix("file://"))
    on_disk = {f"file://{folder}/{name}" for name in os.listdir(folder) if name.endswith(".txt")}
    return {uri: open(uri.removeprefix("file://")).read() for uri in sorted(on_disk)} | files


def find_word_at(params: dict[str, Any]) -> str:
    text, at = files[params["textDocument"]["uri"]], params["position"]
    for match in re.finditer(r"\w+", text):
        if any(span["start"] == at for span in find_spans(text, match[0])):
            return match[0]
    return ""


def answer_request(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        can = ("definition", "references", "hover", "rename", "documentSymbol", "workspaceSymbol")
        pull: dict[str, Any] = {"diagnosticProvider": {}} if QUIRKS & {"pull", "both"} else {}
        encoding = {"positionEncoding": ENCODING} if ENCODING else {}
        return {"capabilities": {"textDocumentSync": {"openClose": True, "change": 1, "save": {}},
                                 **{f"{name}Provider": True for name in can}, **pull, **encoding}}  # fmt: skip
    if "fickle" in QUIRKS and method == "textDocument/diagnostic":
        QUIRKS.discard("fickle")
        raise LookupError("content modified")
    if "unloaded" in QUIRKS and method == "textDocument/definition":
        return None
    if method == "textDocument/diagnostic" and "loads" in QUIRKS:
        return {"kind": "full", "items": []}
    if method == "textDocument/diagnostic":
        QUIRKS.discard("unloaded")
        return {"kind": "full", "items": list_diagnostics(params["textDocument"]["uri"])}
    if method == "workspace/symbol":
        return [{"name": params["query"], "kind": 13, "location": {"uri": uri, "range": span}}
                for uri, text in files.items() for span in find_spans(text, params["query"])]  # fmt: skip
    if method == "textDocument/documentSymbol":
        return [{"name": "top", "kind": 5, "range": span, "selectionRange": span, "children": [
                 {"name": "inner", "kind": 6, "range": span, "selectionRange": span}]}
                for span in find_spans(files[params["textDocument"]["uri"]], "top")]  # fmt: skip
    word, uri = find_word_at(params), params["textDocument"]["uri"]
    if method == "textDocument/hover":
        return {"contents": [{"language": "x", "value": f"about {word}"}, "more"]}
    places = {uri: find_spans(text, word) for uri, text in load_project(uri).items()}
    if method == "textDocument/rename":
        edits = {
            uri: [{"range": span, "newText": params["newName"]} for span in found] for uri, found in places.items()
        }
        if "outside" in QUIRKS:
            edits["file:///etc/passwd"] = [{"range": find_spans("root", "root")[0], "newText": "x"}]
        return {"changes": {uri: items for uri, items in edits.items() if items}}
    found = [{"uri": uri, "range": span} for uri, every in places.items() for span in every]
    return found[:1] if method == "textDocument/definition" else [None, *found]


def misbehave(method: str) -> None:
    if f"exit:{method}" in QUIRKS:
        sys.stderr.write("out of luck\n")
        os._exit(3)
    if f"deaf:{method}" in QUIRKS:
        os.close(0)
    if QUIRKS & {f"hang:{method}", f"deaf:{method}"}:
        time.sleep(600)
    if f"slow:{method}" in QUIRKS:
        time.sleep(0.3)
    if f"garbage:{method}" in QUIRKS:
        os.write(1, b"hello, I am not a server\r\n\r\n" * 200)
    if f"broken:{method}" in QUIRKS:
        os.write(1, b"Content-Length: 5\r\n\r\n{[}]}")
    if f"huge:{method}" in QUIRKS:
        os.write(1, b"Content-Length: 99999999999\r\n\r\n")
    while f"flood:{method}" in QUIRKS:
        os.write(1, b'Content-Length: 32\r\n\r\n{"method": "$/log", "params": 1}' * 1000)


while True:
    message = receive()
    method: str = message.get("method", "")
    params: dict[str, Any] = message.get("params") or {}
    misbehave(method)
    if method == "exit":
        sys.exit(0)
    if "id" in message and method:
        if "wrong_ids" in QUIRKS:
            send({"id": message["id"] + 1000, "result": None})
            send({"id": str(message["id"]), "result": None})
        try:
            send({"id": message["id"], "result": None if method == "shutdown" else answer_request(method, params)})
        except LookupError as error:
            send({"id": message["id"], "error": {"code": -32801, "message": str(error)}})
        if method == "textDocument/diagnostic" and "loads" in QUIRKS:
            QUIRKS.discard("loads")
            send({"id": "again", "method": "workspace/diagnostic/refresh"})
    elif method in ("textDocument/didOpen", "textDocument/didChange"):
        document: dict[str, Any] = params["textDocument"]
        changed: list[Any] = params.get("contentChanges", [document])
        files[document["uri"]] = changed[0]["text"]
        versions[document["uri"]] = document["version"]
        publish(document["uri"])
    elif method == "textDocument/didClose":
        files.pop(params["textDocument"]["uri"], None)
    elif method == "initialized" and "loading" in QUIRKS:
        send({"method": "experimental/serverStatus", "params": {"health": "ok", "quiescent": False}})
    elif method == "initialized" and "asks" in QUIRKS:
        send({"id": 1, "method": "workspace/configuration", "params": {"items": [{"section": "a.b"}, {}, 5]}})
        send({"id": "two", "method": "workspace/applyEdit", "params": {"edit": {"changes": {}}}})
        send({"id": 3, "method": "no/such"})
