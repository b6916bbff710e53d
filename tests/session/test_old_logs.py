"""Sessions of earlier versions are listed, shown, searched, exported, resumed and replayed.

`old_logs` has a folder for each version, named by its commit, with one folder per session and the checkpoints of their
project; `record_logs.py` makes them. Together the sessions of a version contain every event that it had. Each
`expected.json` is what version 8012682b, and of the later ones 67fe590b, made of the log, except for changes since: the
JSON export marks rewound prompts with `rewound` (then `taken_back`), mail is not a prompt, and the replay of `files`
finds another sentence about a denied call.

`ODIN_SNAPSHOTS=write` and `-n 0` record them again, after a deliberate change of what users or models see.
"""

import html
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import force_setattr

from odin.app import open_session
from odin.config import Options
from odin.core import event as events
from odin.core.event import TurnEnded
from odin.core.op import Prompt
from odin.core.timing import DEFAULT_TIMING
from odin.session.log import read_log
from odin.session.search import preview_session, read_recent_prompts
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, say
from tests.conftest import Run
from tests.waiting import TimeLimit

LOGS = Path(__file__).with_name("old_logs")
NAMES = sorted(str(path.parent.relative_to(LOGS)) for path in LOGS.glob("*/*/main.jsonl"))
PROJECT = "/tmp/odin-fixture/project"
STATE = "/tmp/odin-fixture/home/.local/state/odin"
FOLDER = "tmp-odin-fixture-project-47dc33f7"
IS_RECORDING = os.environ.get("ODIN_SNAPSHOTS") == "write"

WORDS = ("polite", "GREETING python", "hello.py", "summary", "naïve ✓", "job left", "typo", "Rewritten", "nowhere")
FIRST = "8012682b"
QUICKLY_REPLAYED = {
    *(f"{FIRST}/{session}" for session in ("files", "loop", "servers")),
    *(name for name in NAMES if name.endswith(("/commands", "/killed-stream", "/undo"))),
}
UNFINISHED = {f"{FIRST}/queue", "c105b072/background", "67fe590b/background"}
"""Their replay waits for what is not in the log: files that the recorder made, and when a job ended."""

STATE_FIELDS = (
    *("model", "title", "agent_mode", "permission_mode", "executing", "queue", "sub_agents", "context", "files"),
    *("custom_instructions", "todos", "usage", "cost_usd", "spent_by_model", "spent_by_agent", "context_tokens"),
    *("context_limit", "message_count", "role", "tasks", "team_working", "used_skills"),
)


@pytest.fixture
def state(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with the session `name`, or with all of version `FIRST`, as they were written."""
    folder = home / "state"
    monkeypatch.setenv("ODIN_STATE_DIR", str(folder))
    wanted: str = request.getfixturevalue("name") if "name" in request.fixturenames else f"{FIRST}/"
    for name in NAMES:
        if name == wanted or (wanted.endswith("/") and name.startswith(wanted)):
            target = folder / "sessions" / FOLDER / get_session(name)
            shutil.copytree(LOGS / name, target, ignore=shutil.ignore_patterns("*.json"))
    shutil.copytree(LOGS / wanted.partition("/")[0] / "checkpoints", folder / "checkpoints" / FOLDER)
    return folder


def get_session(name: str) -> str:
    """Return the id of the session `VERSION/ID`."""
    return name.partition("/")[2]


def move(state: Path, workspace: Path, name: str) -> None:
    """Rewrite the paths in the log of a session, as if it had been in the workspace."""
    sessions = SessionStore(state, str(workspace)).folder
    shutil.move(state / "sessions" / FOLDER, sessions)
    shutil.move(state / "checkpoints" / FOLDER, state / "checkpoints" / sessions.name)
    log = sessions / get_session(name) / "main.jsonl"
    moved = log.read_bytes().replace(f"{STATE}/sessions/{FOLDER}".encode(), str(sessions).encode())
    log.write_bytes(moved.replace(PROJECT.encode(), str(workspace).encode()))


def compare(name: str, part: str, found: Any, **places: Path) -> None:
    """Compare a value with the recorded one. Times and the named places may differ; long texts are shortened."""
    text = json.dumps(_drop(json.loads(msgspec.json.encode(found))), ensure_ascii=False)
    for recorded, place in places.items():
        text = text.replace(str(place), {"project": PROJECT, "state": STATE}[recorded])
    text = re.sub(r"[\w-]*project-[0-9a-f]{8}", FOLDER, text)
    text = re.sub(r"Platform: \w+, shell: \w+", "Platform: linux, shell: sh", text)
    text = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "2026-01-01", text)
    text = re.sub(r"cached \d\d:\d\d:\d\d", "cached 12:00:00", text)
    text = re.sub(r"\[Output of (\w+) .*? removed", r"[Output of \1 … removed", text)  # has long paths shortened
    value = _shorten(json.loads(text))
    path = LOGS / name / "expected.json"
    expected: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if IS_RECORDING:
        expected[part] = value
        path.write_text(_format(expected))
    assert json.dumps(value, indent=1, ensure_ascii=False) == json.dumps(expected[part], indent=1, ensure_ascii=False)


def _format(parts: dict[str, Any]) -> str:
    """Return the parts as JSON with one line for each item."""
    texts: list[str] = []
    comma = ",\n  "
    for part, value in sorted(parts.items()):
        if isinstance(value, dict):
            rows = [f"{_dump(key)}: {_dump(row)}" for key, row in cast("dict[str, Any]", value).items()]
        else:
            rows = [_dump(row) for row in value]
        start, end = "{}" if isinstance(value, dict) else "[]"
        texts.append(f" {_dump(part)}: {start}\n  {comma.join(rows)}\n {end}")
    return "{\n" + ",\n".join(texts) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


TIMES = frozenset(("ts", "modified", "created", "started", "timestamp", "duration_ms"))
OTHERS = frozenset(("bytes", "version", "origin", "is_denied", "error_kind", "source"))
"""Fields that are not compared. No model sees the last four, which were added later."""


def _drop(value: Any) -> Any:
    """Return the value without empty fields, times and `OTHERS`."""
    if isinstance(value, dict):
        fields = {key: _drop(item) for key, item in sorted(cast("dict[str, Any]", value).items())}
        dropped = TIMES | OTHERS
        return {
            key: item
            for key, item in fields.items()
            if key not in dropped and not key.endswith("_at") and (item or item == 0) and item is not False
        }
    return [_drop(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shorten(item) for item in cast("list[Any]", value)]
    if isinstance(value, str) and len(value) > 160:
        return f"{value[:100]}… {len(value)} characters, {zlib.crc32(value.encode()):08x}"
    return value


def split_paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n{2,}", text) if part.strip()]


@pytest.mark.parametrize("name", NAMES)
def test_stored_session_is_listed_shown_and_exported(name: str, state: Path, run_odin: Run, tmp_path: Path) -> None:
    def run(*args: str) -> str:
        done = run_odin("sessions", *args)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    session = get_session(name)
    listed = {item["id"]: item for item in json.loads(run("--all", "--json"))}
    compare(name, "summary", listed[session])
    compare(name, "prompts", json.loads(run("show", session, "--json"))["prompts"])
    exports = {form: tmp_path / f"export.{form}" for form in ("markdown", "json", "html")}
    for form, path in exports.items():
        run("export", session, "--format", form, "-o", str(path))
    compare(name, "markdown", split_paragraphs(exports["markdown"].read_text()))
    exported = json.loads(exports["json"].read_text())
    compare(name, "json messages", exported.pop("messages"))
    compare(name, "json", exported)
    body = exports["html"].read_text().partition("<main")[2]
    shown = html.unescape(re.sub(r"(<[^>]*>|\s)+", " ", re.sub(r"\d+ ms|[\d.]+ s", "", body)))
    compare(name, "html", shown.split(" Prompt "))


@pytest.mark.parametrize("name", NAMES)
def test_stored_session_has_the_same_state(name: str, state: Path) -> None:
    session = get_session(name)
    log = state / "sessions" / FOLDER / session / "main.jsonl"
    folded = SessionState.fold(list(read_log(log)), session)
    snapshot = folded.snapshot()
    found = {field: getattr(snapshot, field) for field in STATE_FIELDS}
    fields = ("id", "body", "mode", "delivery", "attachments", "paused", "agent", "temperature", "max_tokens")
    found["queue"] = [{field: getattr(item, field) for field in fields} for item in snapshot.queue]
    compare(name, "state", found)
    agents = dict.fromkeys(json.loads(line).get("agent", "") for line in _list_lines(log))
    compare(name, "messages", {agent: folded.build_history(agent) for agent in agents})
    compare(name, "preview", preview_session(log, session))


def _list_lines(log: Path) -> Iterator[str]:
    """Yield the lines of a log with events; the last one may be torn."""
    yield from (line for line in log.read_text().split("\n")[1:] if line.endswith("}"))


@pytest.mark.parametrize("name", NAMES)
async def test_stored_session_is_resumed_with_the_same_conversation(name: str, state: Path, workspace: Path) -> None:
    move(state, workspace, name)
    with ScriptedServer([say("Resumed.")]) as server:
        env = {**os.environ, **server.env("anthropic")}
        client = await open_session(Options(cwd=str(workspace), resume=get_session(name), env=env, can_ask=True))
        heard = client.stream_events()
        await client.submit(Prompt("resumed", "Where were we?"))
        async with TimeLimit():
            async for envelope in heard:
                if isinstance(envelope.event, TurnEnded) and envelope.event.id == "resumed":
                    break
        await client.close()
        assert server.rejected == []
    sent = [f"{message['role']}: {json.dumps(message['content'])}" for message in server.requests[0].messages]
    compare(name, "request", sent, project=workspace, state=state)


def test_stored_sessions_are_found(state: Path, run_odin: Run) -> None:
    for words in WORDS:
        found = json.loads(run_odin("sessions", "search", words, "--all", "--json").stdout)
        brief = sorted([match["session"]["id"], match["where"], match["snippet"], match["seq"]] for match in found)
        compare(f"{FIRST}/files", f"search {words}", brief)
    prompts = sorted(read_recent_prompts(state / "sessions" / FOLDER, 200))
    compare(f"{FIRST}/files", "recent prompts", prompts)


def test_usage_of_stored_sessions_is_reported(state: Path, run_odin: Run) -> None:
    for by in ("session", "model", "agent", "purpose"):
        report = json.loads(run_odin("usage", "--all", "--by", by, "--json").stdout)
        compare(f"{FIRST}/files", f"usage by {by}", sorted(report["rows"], key=lambda row: row["name"]))


def test_changes_of_a_stored_session_are_undone(state: Path, workspace: Path, run_odin: Run) -> None:
    move(state, workspace, f"{FIRST}/files")
    contents = {"hello.py": "print('Good morning')\n", "later.py": "x = 1\n", "café.txt": "naïve ✓\n"}
    for name, text in contents.items():
        (workspace / name).write_text(text)
    listed = run_odin("undo", "--session", "files", "--list", "--json")
    compare(f"{FIRST}/files", "undo list", json.loads(listed.stdout), project=workspace)
    done = run_odin("undo", "--session", "files", "--to", "files-1", "--json", "--force")
    assert done.returncode == 0, done.stderr
    compare(f"{FIRST}/files", "undo", json.loads(done.stdout), project=workspace)
    left = {path.name: path.read_text() for path in workspace.rglob("*") if path.is_file()}
    assert left == {"hello.py": "print('Hello')\n", "old.txt": "old\n"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICKLY_REPLAYED else pytest.mark.slow) for name in NAMES]
)
def test_stored_session_is_replayed(name: str, state: Path, run_odin: Run) -> None:
    """A replay gives the same result or names what differs. Calls on files that are no longer there fail."""
    patience = DEFAULT_TIMING.replay_stall_s
    if name in UNFINISHED:  # a busy machine only makes it give up earlier
        force_setattr(DEFAULT_TIMING, "replay_stall_s", 3.0)
    try:
        done = run_odin("replay", get_session(name), "--yes", "--json")
    finally:
        force_setattr(DEFAULT_TIMING, "replay_stall_s", patience)
    report = json.loads(done.stdout)
    differences = report["differences"]
    assert (done.returncode, done.stderr, report["same"]) == (bool(differences), "", not differences)
    assert report["prompts"] > 0
    assert all(each["what"] and (each.get("recorded") or each.get("replayed")) for each in differences)
    if name in QUICKLY_REPLAYED:
        compare(name, "replay", {field: report[field] for field in ("prompts", "calls", "differences")})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'{"odin_log":2,', b'{"odin_log":3,', "log format 3; this version supports 2"),
        (b'"type":"TitleSet"', b'"type":"Teleported"', "this version cannot read the event Teleported in line 47"),
        (b'"reason":"end_turn"', b'"reason":"vanished"', "this version cannot read the event TurnEnded in line 34"),
    ],
    ids=["format", "event", "value"],
)
def test_log_of_a_newer_version_is_refused(
    old: bytes, new: bytes, why: str, state: Path, workspace: Path, run_odin: Run
) -> None:
    move(state, workspace, f"{FIRST}/files")
    (log,) = state.glob("sessions/*/files/main.jsonl")
    newer = log.read_bytes().replace(old, new)
    log.write_bytes(newer)
    for other in log.parent.parent.glob("*/main.jsonl"):
        os.utime(other, (1, 1 + (other == log)))
    args = [("-p", "go on", "--resume", "files"), ("-p", "go on", "--continue"), ("replay", "files")]
    args += [("sessions", word, "files") for word in ("show", "export", "fork")]
    for words in args:
        done = run_odin(*words)
        assert (done.returncode, done.stdout) == (1, ""), words
        sentence = f"Session files was written by a newer version of Odin ({why})."
        assert f"{sentence} Update Odin to open it. The file was not changed." in " ".join(done.stderr.split()), words
    assert log.read_bytes() == newer


ADDED_AFTER = {
    "8012682b": {"ReplyDrafted", "SpawnListening"},
    "c105b072": {"RootAdded", "RootRemoved", "ScheduleChanged"},
    "67fe590b": set[str](),
}
"""The durable events that came after a version, oldest version first."""


@pytest.mark.parametrize("version", ADDED_AFTER)
def test_stored_logs_contain_every_event(version: str) -> None:
    durable = {kind.__name__ for kind in events.AnyEvent.__args__ if kind.durable}
    versions = list(ADDED_AFTER)
    later = set[str]().union(*(ADDED_AFTER[other] for other in versions[versions.index(version) :]))
    logs = (LOGS / version).glob("*/main.jsonl")
    assert {json.loads(line)["event"]["type"] for log in logs for line in _list_lines(log)} == durable - later


def test_stored_logs_name_no_machine_or_person() -> None:
    """Their paths are those of the recorder, its commands and /etc; `expected.json` shortens some in the middle."""
    texts = [path.read_bytes().decode(errors="replace") for path in LOGS.rglob("*") if path.is_file()]
    text = "\n".join(texts)
    assert not re.findall(r"[\w.-]+@[\w-]+", text), "an address, or a user and a host"
    assert {url.rpartition(":")[0] for url in re.findall(r"https?://[\w.:-]+", text)} <= {"http://127.0.0.1"}
    slash_commands = {"/loop", "/deploy", "/greet", "/pdf", "/ps"}
    roots = set(re.findall(r"(?<![\w.<~/:@-])/[A-Za-z][\w-]*", text))
    assert {root for root in roots if not "/tmp".startswith(root)} <= {"/etc", *slash_commands}
    folders = set(re.findall(r"/tmp/[\w-]+", text))
    assert all("/tmp/odin-fixture".startswith(folder) for folder in folders), folders
