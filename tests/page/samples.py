"""Every kind of block, and a state with everything in it. Each text is made by a function that gets its name."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from odin.core.call_events import PermissionAsked, PlanAsked, QuestionsAsked
from odin.core.effects import EffectSummary
from odin.core.event_values import Option, Question
from odin.core.interaction import make_interaction
from odin.core.message import Image
from odin.server.page.blocks import encode_block
from odin.server.page.requests import encode_request
from odin.ui.transcript.blocks import (
    AgentBlock,
    AnswerBlock,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
)
from odin.ui.transcript.words import ShownFolders

Text = Callable[[str], str]
Raw = dict[str, Any]


def make_blocks(text: Text) -> list[Raw]:
    diff = f"--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-{text('old line')}\n+{text('new line')}\n {text('same line')}\n"
    answer = AnswerBlock(key="answer")
    answer.text = (
        f"# {text('heading')}\n\n{text('answer')}\n\n- {text('item')}\n\n> {text('quote')}\n\n`{text('code')}`\n"
    )
    answer.text += f"\n```python\n{text('fence')}\n```\n\n| {text('head')} | b |\n|---|---|\n| {text('cell')} | 2 |\n"
    answer.text += "\nhttps://example.org/x and [a link](https://example.org/y)\n"
    thought = ReasoningBlock(key="thought", seconds=3)
    thought.text = text("thinking")
    image = Image(path="/tmp/x.png", media_type="image/png", width=3, height=2, name=text("image name"))
    args = {text("argument name"): text("argument"), "file_path": text("path")}
    done: Raw = {"args": args, "duration_ms": 1200, "started": 1.0}
    blocks: list[TranscriptBlock] = [
        PromptBlock(key="prompt", text=text("prompt"), mode="edit_mode", images=(image,)),
        PromptBlock(key="mail", text=text("mail"), mode="ask_mode", is_injected=True, is_mail=True),
        thought,
        CallBlock(key="call-diff", name="EditTool", state="success", view=diff, **done),
        CallBlock(key="call-read", name="Read", state="success", result=text("result"), images=(image,), **done),
        CallBlock(key="call-odd", name=text("tool name"), state="error", result=text("failure"), **done),
        CallBlock(key="call-denied", name="Bash", state="denied", explanation=text("explanation"), **done),
        CallBlock(
            **done,
            key="call-more",
            name="Bash",
            state="success",
            result=text("output"),
            for_user=text("for the user"),
            aside=text("aside"),
            changed_by=text("changer"),
            redacted=(text("redacted"),),
            original_args={"command": text("original")},
        ),
        CallBlock(key="call-live", name="Bash", state="running", args=args, tail=[text("tail")], started=1.0),
        answer,
        CommandBlock(key="command", command=text("command"), output=text("command output"), live=False),
        AgentBlock(
            key=text("agent name"),
            task=text("task"),
            mode="edit_mode",
            description=text("description"),
            type=text("agent type"),
            model=text("agent model"),
            note=text("note"),
            doing=text("doing"),
            reason="end_turn",
            answer=text("report"),
        ),
        AgentBlock(key="busy-1", task=text("busy task"), mode="edit_mode", doing=text("busy doing"), color="green"),
        ProcessBlock(
            key="spawn-1", command=text("process command"), description=text("process"), output=text("process output")
        ),
        ProcessBlock(key="spawn-2", command=text("process command 2"), status="failed", code=3, output="x"),
        NoticeBlock(key="notice", text=text("notice")),
        NoticeBlock(key="warning", text=text("warning"), level="warn"),
        NoticeBlock(key="failure", text=text("failed notice"), level="error"),
        SummaryBlock(key="summary", text=text("summary"), tokens_before=1000, tokens_after=100),
        EndBlock(key="end-bad", reason="error", error=text("error"), hint=text("hint"), next_step=text("next step")),
        EndBlock(key="end", reason="end_turn", cost_usd=0.1, duration_ms=2500),
    ]
    return [msgspec.to_builtins(encode_block(block, ShownFolders())) for block in blocks]


def make_requests(text: Text) -> dict[str, Raw]:
    """Return one of each kind of request."""
    preview = f"--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-{text('before')}\n+{text('after')}\n"
    permission = PermissionAsked(
        ask_id="ask-1",
        call_id="c1",
        name=text("asked tool"),
        args={"command": text("asked command"), "description": text("asked description")},
        reason=text("reason"),
        subject=text("subject"),
        rules=(f"Bash({text('rule')})", "Bash(other)"),
        preview=preview,
        effect=text("effect"),
        danger="network",
        task=text("asked task"),
    )
    questions = (
        Question(text("header"), text("question"), (Option(text("option"), text("option detail")), Option("other"))),
        Question("More", text("many"), (Option("one"), Option("two")), multiple=True),
        Question("Number", "How many?", type="integer", minimum=1, maximum=9),
    )
    asks = {
        "permission": permission,
        "effects": msgspec.structs.replace(permission, ask_id="ask-2", effects=EffectSummary(files=())),
        "questions": QuestionsAsked(ask_id="ask-3", call_id="c3", questions=questions),
        "elicitation": QuestionsAsked(ask_id="ask-4", call_id="c4", questions=questions, server=text("server")),
        "plan": PlanAsked(
            ask_id="ask-5", call_id="c5", title=text("plan title"), text=f"# A\n\n{text('plan')}", path="p"
        ),
    }
    return {
        name: msgspec.to_builtins(
            encode_request(make_interaction(asked, text("asking agent") if name == "permission" else ""))
        )
        for name, asked in asks.items()
    }


def fill_state(state: Raw, text: Text, requests: Sequence[Raw] = ()) -> Raw:
    """Return the state of a session at work, with something in each of its lists."""
    agent = {
        "id": text("agent"),
        "description": text("agent task"),
        "type": text("type"),
        "state": "running",
        "mark": "◐",
        "tone": "accent",
    }
    process = {
        "command": text("running command"),
        "description": text("running process"),
        "status": "running",
        "mark": "▶",
        "tone": "accent",
    }
    return state | {
        "title": text("title"),
        "model": f"x/{text('model')}",
        "role": text("role"),
        "effort": text("effort"),
        "permission_mode": text("permission mode"),
        "branch": text("branch"),
        "sandbox": text("sandbox"),
        "cwd": text("folder"),
        "warnings": [text("state warning")],
        "executing": True,
        "is_working": True,
        "turn": "p1",
        "activity": {
            "text": text("activity"),
            "detail": text("activity detail"),
            "is_busy": True,
            "is_asking": False,
            "is_failure": False,
            "since": 0,
        },
        "queue": [
            {
                "id": "q1",
                "text": "queued",
                "shown": text("queued"),
                "mode": "ask_mode",
                "delivery": None,
                "paused": False,
            }
        ],
        "todos": [
            {"id": "1", "content": text("todo"), "status": "pending", "active_form": ""},
            {"id": "2", "content": "x", "status": "in_progress", "active_form": text("active todo")},
            {"id": "3", "content": text("done todo"), "status": "completed", "active_form": ""},
        ],
        "agents": [
            agent
            | {"is_working": True, "is_asking": False, "text": text("agent state"), "model": text("agent's model")}
            | {"context_tokens": 10, "context_limit": 100, "outcome": text("outcome"), "color": "green"}
            | {"task_id": text("task id"), "unread": 1}
        ],
        "processes": [process | {"id": text("process id"), "text": text("process state"), "urls": {"80": text("url")}}],
        "files": [{"path": text("file"), "added": 1, "removed": 2, "is_deleted": False, "is_counted": True}],
        "context_tokens": 900,
        "context_limit": 1000,
        "cost": text("cost"),
        "budget": text("budget"),
        "status": [(text("status part"), "warn")],
        "interactions": list(requests),
    }
