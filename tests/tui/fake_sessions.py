"""Fake sessions without an engine: they emit given events and record submitted ops.

They show that the app needs nothing but the client protocol, and make screenshots reproducible.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from odin.core.call_events import ActivityChanged, UsageGrouping, UsageReport, UsageRow
from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ChangedFile,
    Client,
    ContextPart,
    ContextReport,
    CustomCommand,
    Exchange,
    ExportFormat,
    LoopStatus,
    ProcessOutput,
    ProcessRecord,
    RewindPlan,
    SavedSetting,
    ServerScope,
    SessionInfo,
    SessionMatch,
    SessionPreview,
    SessionSummary,
    Snapshot,
)
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.message import Usage
from odin.core.op import CancelCompaction, Interrupt, Op, Prompt, Rewind
from odin.core.policy import CallbackHook, RuleLine
from odin.core.tool import Tool

START = 1_700_000_000.0
"""The time before the first event; each event is a second later."""


class FakeClient:
    """A session without an engine. `emit` emits events now; those given to the constructor are in the past."""

    def __init__(self, past: Collection[AnyEvent] = (), *, session: str = "20260101120000000", **info: Any) -> None:
        self.submitted: list[Op] = []
        self.submit_results: dict[type[Any], bool] = {CancelCompaction: False}
        self.session = session
        self._info: dict[str, Any] = {
            "cwd": "~/project",
            "model": "anthropic/claude-sonnet-4-5",
            "version": "0.1.0",
            "mode": "edit_mode",
            "permission_mode": "default",
            "tools": ("Read", "Edit"),
            "sandbox": "bubblewrap",
            **info,
        }
        self.snapshot_fields: dict[str, Any] = {}
        self.plan = RewindPlan()
        self.paths: tuple[str, ...] = ()
        self.processes: tuple[ProcessRecord, ...] = ()
        self.custom_commands: tuple[CustomCommand, ...] = ()
        self._log: list[Envelope] = []
        self._queues: list[asyncio.Queue[Envelope]] = []
        self._seq = -1
        self._now = START
        for event in past:
            self.emit(event)

    def emit(self, *events: AnyEvent, agent: str = "", after: float = 1.0) -> None:
        for event in events:
            self._now += after
            self._seq += event.durable
            envelope = Envelope(self._seq, self._now, self.session, event, agent)
            if event.durable:
                self._log.append(envelope)
            for queue in self._queues:
                queue.put_nowait(envelope)

    @property
    def now(self) -> float:
        return self._now

    async def submit(self, op: Op) -> bool:
        self.submitted.append(op)
        return self.submit_results.get(type(op), self._executing if isinstance(op, Interrupt) else True)

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        queue: asyncio.Queue[Envelope] = asyncio.Queue()
        past = [] if after is None else [envelope for envelope in self._log if envelope.seq > after]
        self._queues.append(queue)
        return self._read(past, queue)

    async def _read(self, past: list[Envelope], queue: "asyncio.Queue[Envelope]") -> AsyncIterator[Envelope]:
        for envelope in past:
            yield envelope
        while True:
            yield await queue.get()

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        raise NotImplementedError

    def set_answering(self, answers: bool, reason: str = "") -> None:
        return None

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        return None

    async def snapshot(self) -> Snapshot:
        fields: dict[str, Any] = {
            "session": self.session,
            "seq": self._seq,
            "cwd": self._info["cwd"],
            "model": self._info["model"],
            "title": "",
            "agent_mode": self._info["mode"],
            "permission_mode": self._info["permission_mode"],
            "executing": self._executing,
            "messages": (),
            "queue": (),
            "sub_agents": (),
            "context": (),
            "custom_instructions": "",
            "config": {},
            "files": (),
            "todos": (),
            "usage": Usage(),
            "cost_usd": 0.0,
            "usage_by_model": {},
            "usage_by_agent": {},
            "spent_by_model": {},
            "spent_by_agent": {},
            "context_tokens": 0,
            "context_limit": 200_000,
            "message_count": 0,
        }
        return Snapshot(**{**fields, **self.snapshot_fields})

    @property
    def _executing(self) -> bool:
        """True if a turn of the main agent is running."""
        turns = [one.event for one in self._log if not one.agent and isinstance(one.event, TurnStarted | TurnEnded)]
        return bool(turns) and isinstance(turns[-1], TurnStarted)

    async def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        yield await self.snapshot()

    async def get_info(self) -> SessionInfo:
        return SessionInfo(session=self.session, **self._info)

    async def report_context(self) -> ContextReport:
        parts = (ContextPart("tools", 6_000, 14), ContextPart("prompts", 2_000, 3))
        return ContextReport(self._info["model"], 8_000, 200_000, 160_000, measured=True, parts=parts)

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        return ""

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return (
            RuleLine(1, "user", "allow", "Bash(git log:*)", "~/.config/odin/odinconfig.json"),
            RuleLine(2, "session", "deny", "Edit(secrets/**)", "this session"),
        )

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        return tuple(path for path in self.paths if words.casefold() in path.casefold())[:limit]

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return self.custom_commands

    async def list_agents(self) -> tuple[AgentSummary, ...]:
        return AgentSummary("builder", "main", "Builds."), AgentSummary("planner", "main", "Plans.")

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        found = (
            AvailableModel(
                "anthropic/claude-sonnet-4-5",
                200_000,
                "native",
                "https://api.anthropic.com",
                3.0,
                15.0,
                0.3,
                3.75,
                "key in ANTHROPIC_API_KEY",
            ),
            AvailableModel("offline/planner", 100_000, "native", "built in", 0.0, 0.0, note="no network"),
        )
        local = AvailableModel("ollama/qwen3", 32_000, "json", "http://localhost:11434", note="on this machine")
        return (*found, local) if servers == "all" else found

    async def list_processes(self) -> tuple[ProcessRecord, ...]:
        return self.processes

    async def read_process(self, id: str, after: int = 0) -> ProcessOutput:
        return ProcessOutput("listening\n", 10)

    async def get_loop_status(self, agent: str = "") -> LoopStatus:
        return LoopStatus()

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        return self.plan

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        return None

    def add_hook(self, hook: CallbackHook) -> None:
        return None

    async def close(self, timeout: float | None = None) -> bool:
        return True


class FakeSessions:
    """The sessions of a project, all of them `FakeClient`s."""

    def __init__(self, *clients: Any, summaries: Collection[SessionSummary] = ()) -> None:
        self._clients = {client.session: client for client in clients}
        self._open: Any = clients[0]
        self._summaries = tuple(summaries)
        self.renamed: dict[str, str] = {}
        self.saved: dict[str, str] = {}
        self.earlier_prompts: tuple[str, ...] = ()

    @property
    def client(self) -> Client:
        return self._open

    async def open_new(self) -> Client:
        self._open = FakeClient(session="20260101130000000")
        return self._open

    async def resume(self, session: str) -> Client:
        self._open = self._clients[session]
        return self._open

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        return self._open, ""

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Client, Prompt]:
        return await self.open_new(), Prompt("execute", f"Carry out {plan}", "edit_mode")

    async def list_sessions(self) -> tuple[SessionSummary, ...]:
        return self._summaries

    async def search(self, words: str) -> tuple[SessionMatch, ...]:
        found = (item for item in self._summaries if words.casefold() in f"{item.title} {item.first}".casefold())
        return tuple(SessionMatch(item, "title", item.title) for item in found)

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        return self.earlier_prompts[:limit]

    async def preview(self, session: str) -> SessionPreview:
        exchanges = (Exchange("What does the parser do?", "It reads a file line by line."), Exchange("Make it faster."))
        return SessionPreview(session, exchanges, earlier=True)

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        names = {"day": ("2023-11-13", "2023-11-14"), "model": ("anthropic/claude-sonnet-4-5", "ollama/qwen3")}
        names["agent"] = ("main agent", "sub-agents")
        rows = tuple(
            UsageRow(name, "", 4, 1_200, 800, 30_000, 2_500, 0, 0.0412, 900 * place, 0.89)
            for place, name in enumerate(names.get(by, ("turn", "compaction")))
        )
        total = UsageRow("total", "", 8, 2_400, 1_600, 60_000, 5_000, 0, 0.0824, 900, 0.89)
        return UsageReport("all time", by, rows, total)

    async def list_changes(self, paths: Sequence[str] = ()) -> tuple[ChangedFile, ...]:
        diff = "--- a/parser.py\n+++ b/parser.py\n@@ -1,2 +1,2 @@\n def read():\n-    return 1\n+    return 2"
        return (
            ChangedFile("parser.py", "modified", 1, 1, diff),
            ChangedFile("notes.txt", "added", 1, 0, "--- /dev/null\n+++ b/notes.txt\n@@ -0,0 +1 @@\n+hello"),
            ChangedFile("logo.png", "binary"),
        )

    async def add_server(self, url: str) -> tuple[str, ...]:
        return (f"{url}/model",)

    async def save_setting(self, key: str, value: str) -> SavedSetting:
        self.saved[key] = value
        return SavedSetting("~/.config/odin/odinconfig.json")

    async def rename(self, session: str, title: str) -> None:
        self.renamed[session] = title

    async def delete(self, session: str) -> None:
        self._summaries = tuple(item for item in self._summaries if item.id != session)

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        return f"~/{session}.{form}"

    async def close(self) -> None:
        return None
