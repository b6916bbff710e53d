"""An MCP server in plain Python, which starts quickly; its argument chooses the tools and a fault.

python -I -S server.py '{"tools": 3, "fault": "hang"}'
"""

import json
import os
import sys
import time
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
FAULT = OPTIONS.get("fault", "")
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
unanswered: list[Any] = []
counts = {"lists": 0}


def send(**message: Any) -> None:
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


def ask_client(method: str, params: dict[str, Any]) -> dict[str, Any]:
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
        send(method="notifications/tools/list_changed")
        return text("changed")
    if name == "count":
        return text(str(counts["lists"]))
    if name == "env":
        return text(os.environ.get(args.get("text", ""), "unset"))
    return text(f"{name}: {args.get('text', '')}")


def answer(request: dict[str, Any]) -> None:
    params: dict[str, Any] = request.get("params") or {}
    method, number = request.get("method"), request.get("id")
    named: dict[str, Any] = params.get("arguments") or {}
    who = named.get("who")
    if number is None:
        return
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
            **({"instructions": OPTIONS["instructions"]} if "instructions" in OPTIONS else {}),
        },
        "ping": {},
        "resources/list": {
            "resources": [{"uri": OPTIONS.get("uri", "note://one"), "name": "one", "mimeType": "text/plain"}]
        },
        "resources/read": {"contents": [{"uri": params.get("uri"), "text": f"the text of {params.get('uri')}"}]},
        "prompts/list": {
            "prompts": [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}]
        },
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {who}."}}]},
    }
    if method == "tools/list":
        send(id=number, result={"tools": list_tools()})
        counts["lists"] += 1
        if FAULT == "restless":
            send(method="notifications/tools/list_changed")
    elif method == "prompts/get" and FAULT == "mute":
        return
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments") or {}, params.get("_meta") or {}, number)
        if result:
            send(id=number, result=result)
    elif method in results:
        send(id=number, result=results[method])
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
