"""An MCP server in plain Python, which starts quickly; its argument chooses the tools and a fault.

python -I -S server.py '{"tools": 3, "fault": "hang"}'

`era` chooses the revisions of the protocol: by default only those with a handshake; "2026-07-28" has none
(https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning), and `refusal` is how it answers one.
`era_file` names a file with the era, `log` one that gets the method of each request.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
FAULT = OPTIONS.get("fault", "")
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
unanswered: list[Any] = []
counts: dict[str, Any] = {"lists": 0}
current: dict[str, Any] = {}
ERA = Path(OPTIONS["era_file"]).read_text() if "era_file" in OPTIONS else OPTIONS.get("era", "")
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


def send(**message: Any) -> None:
    result = message.get("result")
    if ERA == MODERN and isinstance(result, dict) and "method" not in message:
        # https://modelcontextprotocol.io/specification/2026-07-28/basic: each result says what it is
        message["result"] = {"resultType": "complete", **result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": OBJECT, **more}


def list_tools() -> list[dict[str, Any]]:
    count: Any = OPTIONS.get("tools", 0)
    if isinstance(count, list):
        return [*count]
    named = [
        tool("echo", annotations={"readOnlyHint": True}),
        tool("write", annotations={"readOnlyHint": False}),
        tool("fail"), tool("picture"), tool("slow"), tool("ask"), tool("die"), tool("long"), tool("change"),
        tool("env"), tool("sample"), tool("roots"),
    ]  # fmt: skip
    return named if not count else [tool(f"tool_{number}") for number in range(count)]


class InputRequired(Exception):
    """A question that ends the call; the client repeats the call with the answer."""


def ask_client(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if ERA == MODERN:
        # https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
        if "inputResponses" in current:
            assert current["requestState"] == f"state of {method}", current
            return {"result": current["inputResponses"]["question"]}
        raise InputRequired(method, params)
    send(id="from-server", method=method, params=params)
    while True:
        answer = read()
        if answer.get("id") == "from-server":
            return answer
        unanswered.append(answer)


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        if "stubborn" in FAULT:
            time.sleep(60)
        sys.exit(0)
    return json.loads(line)


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], **more}


def call(name: str, args: dict[str, Any], meta: dict[str, Any], number: Any) -> dict[str, Any]:
    if name == "fail":
        return text("It failed.", isError=True)
    if name == "picture":
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
    if name == "slow":
        for step in (1, 2):
            token = {"progressToken": meta.get("progressToken"), "progress": step, "total": 2, "message": "working"}
            send(method="notifications/progress", params=token)
        send(method="notifications/message", params={"level": "info", "data": "half way"})
        return text("slow done")
    if name == "ask":
        if FAULT == "ambiguous":  # it asks when another call has arrived, too
            send(method="notifications/message", params={"level": "info", "data": "waiting"})
            unanswered.append(read())
        schema = json.loads(args["text"]) if args.get("text") else {"name": {"type": "string"}}
        form = {"type": "object", "properties": schema, "required": [*schema]}
        params = {"message": "Who are you?", "requestedSchema": form}
        return text(json.dumps(ask_client("elicitation/create", params).get("result")))
    if name == "ask_and_go":
        for number in range(int(args.get("text") or 1)):
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            send(id=f"q{number}", method="elicitation/create", params={"message": "Sure?", "requestedSchema": form})
        return text("gone")
    if name == "broken":
        sys.stdout.write(args["text"].replace("ID", str(number)) + "\n")
        sys.stdout.flush()
        return {}
    if name == "sample":
        message = {"role": "user", "content": {"type": "text", "text": "Say hi."}}
        return text(json.dumps(ask_client("sampling/createMessage", {"messages": [message], "maxTokens": 50})))
    if name == "roots":
        return text(json.dumps(ask_client("roots/list", {})["result"]))
    if name == "die":
        sys.stderr.write("the disk is on fire\n")
        os._exit(3)
    if name == "long":
        size = int(args.get("text") or 1000)
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":"')
        for _ in range(size // 100_000 or 1):
            sys.stdout.write("x" * min(size, 100_000))
        sys.stdout.write('"}]}}\n')
        sys.stdout.flush()
        return {}
    if name == "change":
        OPTIONS["tools"] = [tool("fresh")]
        asked = {"_meta": {f"{META}subscriptionId": counts["listening"]}} if ERA == MODERN else {}
        send(method="notifications/tools/list_changed", params=asked)
        return text("changed")
    if name == "answer":
        return json.loads(args["text"])
    if name == "count":
        return text(str(counts["lists"]))
    if name == "env":
        return text(os.environ.get(args.get("text", ""), "unset"))
    return text(f"{name}: {args.get('text', '')}")


DISCOVERED: dict[str, Any] = {
    "supportedVersions": [MODERN],
    "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
    "_meta": {f"{META}serverInfo": {"name": "tiny", "version": "1"}},
}


def refuse_version(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error for a request of another revision, and for one without what this revision wants in `_meta`."""
    if ERA == "handshake only" and method == "server/discover":
        sys.exit("expected initialize")  # as old programs do that take the first message for the handshake
    if ERA != MODERN:
        return None
    if method == "initialize":
        return {"message": "No handshake here.", **OPTIONS.get("refusal", {"code": -32601})}
    meta: dict[str, Any] = params.get("_meta") or {}
    missing = {"protocolVersion", "clientInfo", "clientCapabilities"} - {name.removeprefix(META) for name in meta}
    if missing:
        return {"code": -32602, "message": f"_meta lacks {', '.join(sorted(missing))}"}
    if meta[f"{META}protocolVersion"] != MODERN:
        return {"code": -32022, "message": "Unsupported version", "data": {"supported": [MODERN]}}
    return None


def answer(request: dict[str, Any]) -> None:
    params: dict[str, Any] = request.get("params") or {}
    method, number = request.get("method"), request.get("id")
    named: dict[str, Any] = params.get("arguments") or {}
    who = named.get("who")
    if number is None:
        return
    if "log" in OPTIONS:
        with open(OPTIONS["log"], "a") as log:
            log.write(f"{method}\n")
    if FAULT == "refuse":
        send(id=number, error={"code": -32600, "message": "Your licence has expired."})
        return
    if (error := refuse_version(str(method), params)) is not None:
        send(id=number, error=error)
        return
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "1999-01-01" if FAULT == "old" else params.get("protocolVersion"),
            "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
            **({"instructions": OPTIONS["instructions"]} if "instructions" in OPTIONS else {}),
        },
        "ping": {},
        **({"server/discover": DISCOVERED} if ERA == MODERN else {}),
        "resources/list": {
            "resources": [{"uri": OPTIONS.get("uri", "note://one"), "name": "one", "mimeType": "text/plain"}]
        },
        "resources/read": {"contents": [{"uri": params.get("uri"), "text": f"the text of {params.get('uri')}"}]},
        "prompts/list": {
            "prompts": [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}]
        },
        "prompts/get": {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": f"Greet {who}."}},
                *({"role": "user", "content": content} for content in OPTIONS.get("prompt", [])),
            ]
        },
        **({"resources/templates/list": {"resourceTemplates": OPTIONS["templates"]}} if "templates" in OPTIONS else {}),
    }
    hints = {"ttlMs": OPTIONS.get("ttl", 0), "cacheScope": "private"} if ERA == MODERN else {}
    current.clear()
    current.update(params)
    if method == "subscriptions/listen":
        # https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/subscriptions
        counts["listening"] = number
        meta = {f"{META}subscriptionId": number}
        granted = {"notifications": params["notifications"], "_meta": meta}
        send(method="notifications/subscriptions/acknowledged", params=granted)
        return
    if method == "tools/list":
        send(id=number, result={"tools": list_tools(), **hints})
        counts["lists"] += 1
        if FAULT == "restless":
            send(method="notifications/tools/list_changed")
    elif method == "prompts/get" and FAULT == "mute":
        return
    elif method == "tools/call":
        try:
            result = call(params["name"], params.get("arguments") or {}, params.get("_meta") or {}, number)
        except InputRequired as needed:
            asked = {"question": {"method": needed.args[0], "params": needed.args[1]}}
            state = f"state of {needed.args[0]}"
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        if result:
            send(id=number, result=result)
    elif method in results:
        send(id=number, result={**results[method], **(hints if method != "prompts/get" else {})})
    else:
        send(id=number, error={"code": -32601, "message": f"There is no method {method}."})


def main() -> None:
    if "counter" in OPTIONS:
        with open(OPTIONS["counter"], "a+") as counter:
            counter.write("x")
            counter.seek(0)
            if len(counter.read()) <= OPTIONS["crashes"]:
                sys.exit("not yet")
    if FAULT == "crash":
        sys.exit("no licence found")
    if FAULT == "flood":
        while True:
            send(method="notifications/message", params={"level": "info", "data": "x"})
    if FAULT == "junk":
        while True:
            sys.stdout.write("Welcome to my server! " * 100 + "\n")
    if FAULT == "logs":
        sys.stdout.write("listening on stdio\n")
    while True:
        request = unanswered.pop(0) if unanswered else read()
        if "hang" not in FAULT:
            answer(request)


main()
