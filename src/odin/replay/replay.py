"""`odin replay`: plays a session again in a scratch copy of its project and compares the two logs.

Calls that would reach out of the copy (network, files elsewhere, commands without a sandbox) are not made; their
recorded results are used instead.
"""

import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import msgspec

from odin.app.compose import open_session
from odin.app.sandbox import LazySandbox
from odin.config import Options, get_state_dir, load
from odin.config.paths import SCRATCH_FOLDER, find_project_root, make_environment
from odin.config.settings import ConfigKeys
from odin.core.call_events import (
    AskEvent,
    HookRan,
    PermissionAsked,
    QuestionsAsked,
    ToolEnded,
    UsageRecorded,
)
from odin.core.client import Client
from odin.core.errors import LogDamaged, OdinError
from odin.core.event import CHECK_ID_PREFIX, ChecksRan, Compacted, Envelope, TurnStarted
from odin.core.format import count_of
from odin.core.private_folders import open_scratch
from odin.core.provider import ModelInfo
from odin.core.server_tool import PREFIX, ServerTool
from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, fail
from odin.models.catalog import lookup_model
from odin.providers.playback import RecordedProvider
from odin.replay.comparison import Difference, compare_logs
from odin.replay.player import Player
from odin.replay.recording import (
    PROJECT_PATH,
    SESSION_PATH,
    Recording,
    check_location,
    find_recording,
    make_path_mover,
    make_scratch,
    mark_root,
    move_recording,
)
from odin.replay.script import ReplayScript
from odin.session.log import LOG_NAME, read_log
from odin.session.store import SessionStore


class _RecordedArgs(Args, frozen=True):
    """Arguments that are only repeated."""

    values: dict[str, Any]


class RecordedTool(Tool[_RecordedArgs]):
    """A tool of a language server or an MCP server. No server runs in a replay: the results are the recorded ones.

    `known` are the tools that McpCall may stand for.
    """

    args = _RecordedArgs

    def __init__(self, name: str, known: Container[str] = ()) -> None:
        self.name = name
        self.kind = "read" if name == "lsp" else "network"
        self.short = "A tool of a server."
        self._known = known
        if name.startswith(PREFIX):
            server, _, tool = name.removeprefix(PREFIX).partition("__")
            self.server_tool = ServerTool(server, tool)

    def subject_of(self, args: _RecordedArgs) -> Subject:
        return Subject(server_tool=self.server_tool)

    def parse(self, raw: dict[str, Any]) -> _RecordedArgs:
        return _RecordedArgs(raw)

    def find_delegate(self, raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        tool = str(raw.get("tool", ""))
        if self.name != "McpCall" or tool not in self._known:
            return None
        return tool, _as_dict(raw.get("arguments"))

    async def run(self, args: _RecordedArgs, ctx: ToolContext) -> ToolOutput:
        return fail("Servers do not run in a replay.")


class SkippedCalls:
    """A `before_call` step that answers calls from the recording if they would reach outside `folders`.

    `commands`: whether commands may run. `skipped` maps a reason to the ids of the skipped calls.
    """

    def __init__(self, recorded: Iterable[Envelope], folders: Iterable[str], *, commands: bool) -> None:
        self.skipped: dict[str, list[str]] = {}
        self._commands = commands
        self._folders = tuple(os.path.realpath(folder) for folder in folders)
        self._results: dict[str, ToolEnded] = {}
        self._unsandboxed: set[str] = set()
        for item in recorded:
            if isinstance(item.event, ToolEnded):
                self._results[item.event.call_id] = item.event
            elif isinstance(item.event, PermissionAsked) and item.event.unsandboxed:
                self._unsandboxed.add(item.event.call_id)

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        reason = self._explain_skip(tool, args, context)
        if not reason:
            return None
        self.skipped.setdefault(reason, []).append(context.call_id)
        recorded = self._results.get(context.call_id)
        if recorded is None:
            return fail(f"Skipped in a replay: {reason}. The recording has no result for this call.")
        return ToolOutput(
            text=recorded.text,
            is_error=recorded.status != "success",
            note=recorded.note,
            view=recorded.display,
            for_user=recorded.for_user,
            files=recorded.files,
            images=recorded.images,
        )

    def _explain_skip(self, tool: Tool[Any], args: Any, context: ToolContext) -> str:
        if isinstance(tool, RecordedTool):
            return "calls of language servers" if tool.name == "lsp" else "calls of MCP servers"
        if tool.kind == "network":
            return "network calls"
        if tool.kind == "execute":
            if context.call_id in self._unsandboxed:
                return "commands that ran outside the sandbox"
            if context.profile.grants:
                return "commands that may use the network or files outside the project"
            return "" if self._commands else "commands, because no sandbox is available"
        if any(not self._is_within(item.path) for item in context.judged or ()):
            return "calls on files outside the project"
        return ""

    def _is_within(self, path: str) -> bool:
        return any(Path(path).is_relative_to(folder) for folder in self._folders)


_SERVER_TOOLS = ("ToolSearch", "McpCall", "ListMcpResources", "ReadMcpResource")


def make_recorded_tools(recorded: Iterable[Envelope]) -> list[Tool[Any]]:
    """Return the tools of language servers and MCP servers that were called in a recording."""
    called = {item.event.name for item in recorded if isinstance(item.event, ToolEnded)}
    names = {name for name in called if name.startswith(PREFIX) or name in _SERVER_TOOLS}
    wrapped = {"McpCall"} if names else set[str]()
    return [RecordedTool(name, names) for name in sorted(names | wrapped | (called & {"lsp"}))]


_KEPT_VARIABLES = ("ODIN_CACHE_DIR", "ODIN_COMMAND")
_OMITTED_KEYS = (
    "providers",
    "web",
    "env_passthrough",
    "system_header",
    "hooks",
    "sandbox",
    "retry",
    "model",
    "small_model",
    "fallback_model",
    "confirm_timeout_s",
    "question_timeout_s",
)


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line options. `yes` runs commands even without a sandbox."""

    session: str
    cwd: str = ""
    until: int = 0
    keep: bool = False
    json: bool = False
    verbose: bool = False
    yes: bool = False


class ReplayReport(msgspec.Struct, frozen=True):
    """`notes` say what could not be reproduced. `scratch` is the path of the copy if it was kept."""

    session: str
    same: bool
    prompts: int
    calls: int
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    scratch: str = ""


async def replay_session(options: ReplayOptions, report: Callable[[str], None] = lambda line: None) -> ReplayReport:
    recording = find_recording(options.session, options.cwd, options.until)
    import tempfile

    with open_scratch(get_state_dir(make_environment(cwd="/").variables) / SCRATCH_FOLDER) as private:
        if options.keep:
            base = Path(os.path.realpath(tempfile.mkdtemp(prefix="odin-replay-")))
            return await _play_recording(recording, _ScratchSession(recording, base, private), options, report)
        with tempfile.TemporaryDirectory(prefix="odin-replay-", ignore_cleanup_errors=True) as folder:
            scratch = _ScratchSession(recording, Path(os.path.realpath(folder)), private)
            return await _play_recording(recording, scratch, options, report)


async def _play_recording(
    recording: Recording, scratch: "_ScratchSession", options: ReplayOptions, report: Callable[[str], None]
) -> ReplayReport:
    check_location(recording)
    notes = make_scratch(recording, scratch.project, outside=(os.path.realpath(scratch.old_state),))
    mark_root(recording, scratch.project)
    played = move_recording(recording, {recording.root: str(scratch.project), recording.folder: str(scratch.session)})
    scratch.check_inside(played.cwd)
    scratch.write_config(played)
    commands = options.yes or scratch.can_sandbox(played.cwd)
    skipped_calls = SkippedCalls(played.envelopes, (str(scratch.project), str(scratch.session)), commands=commands)

    async def open_client(model: RecordedProvider, resumed: str) -> Client:
        return await scratch.open(played, model, skipped_calls, resumed)

    log = scratch.session / LOG_NAME
    stuck = await Player(played, open_client, log, report).play()
    now = tuple(read_log(log)) if log.exists() else ()
    rename = make_path_mover({str(scratch.project): PROJECT_PATH, str(scratch.session): SESSION_PATH})
    cut = ReplayScript(played.envelopes).cut_turns
    calls = [call for group in skipped_calls.skipped.values() for call in group]
    differences = compare_logs(played.envelopes, now, rename, cut_turns=cut, skipped=calls)
    if stuck:
        differences.append(Difference(1 << 62, "the replay did not finish", "", rename(stuck)))
    notes += [
        f"Skipped, with their recorded results: {len(ids)} {reason}." for reason, ids in skipped_calls.skipped.items()
    ]
    notes += _list_notes(played.envelopes, now)
    return ReplayReport(
        session=recording.header.session,
        same=not differences,
        prompts=sum(isinstance(item.event, TurnStarted) and not item.agent for item in now),
        calls=sum(isinstance(item.event, ToolEnded) for item in now),
        differences=tuple(differences),
        notes=tuple(notes),
        scratch=str(scratch.project) if options.keep else "",
    )


def _list_notes(then: Iterable[Envelope], now: Iterable[Envelope]) -> list[str]:
    """Return what the replay cannot repeat."""
    outcomes = {"modified", "denied", "context", "halted", "asked"}
    hooks = sum(isinstance(item.event, HookRan) and item.event.outcome in outcomes for item in then)
    before, after = (sum(isinstance(item.event, Compacted) for item in side) for side in (then, now))
    notes = [f"Hooks are not run in a replay; in the recording, {hooks} had an effect."] if hooks else []
    if before != after:
        notes.append(f"The conversation was summarized {after} times, in the recording {before} times.")
    return notes


class _ScratchSession:
    """The scratch copy, and its own state folder and configuration where the replayed commands cannot write."""

    def __init__(self, recording: Recording, base: Path, private: Path) -> None:
        self.project = base / "project"
        self.state = private / "state"
        self._config = private / "config"
        self._session = recording.header.session
        self.session = SessionStore(self.state, str(self.project)).path_of(self._session).parent
        self.old_state = recording.store.parent.parent if recording.store is not None else base
        env = make_environment(cwd="/").variables
        kept = {name: value for name, value in env.items() if not name.startswith("ODIN_") or name in _KEPT_VARIABLES}
        self._env = {**kept, "ODIN_CONFIG_DIR": str(self._config), "ODIN_STATE_DIR": str(self.state)}

    def write_config(self, recording: Recording) -> None:
        """Use the recorded settings, except those that reach outside: no hooks, no keys, and commands sandboxed."""
        known = set(ConfigKeys.__struct_encode_fields__) - set(_OMITTED_KEYS)
        settings: dict[str, Any] = {key: value for key, value in recording.opened_event.config.items() if key in known}
        settings["verify"] = _get_verify_settings(recording)
        settings["retry"] = {**_as_dict(recording.opened_event.config.get("retry")), "base_s": 0.0, "max_s": 0.0}
        self._config.mkdir(mode=0o700)
        (self._config / "odinconfig.json").write_bytes(msgspec.json.encode(settings))

    def check_inside(self, cwd: str) -> None:
        """Raise LogDamaged if the recording would make the session work outside the copy."""
        if not Path(os.path.realpath(find_project_root(cwd, self._env))).is_relative_to(self.project):
            raise LogDamaged("The recording points outside its scratch copy, so it is not replayed.")

    def can_sandbox(self, cwd: str) -> bool:
        """True if a sandbox is available to keep commands inside the copy."""
        try:
            sandbox = LazySandbox(load(cwd, self._env), make_environment(self._env, cwd)).get()
            sandbox.probe()
            kind = sandbox.kind
            sandbox.kill()
        except (OdinError, OSError):
            return False
        return kind not in (None, "none")

    async def open(
        self, recording: Recording, model: RecordedProvider, skipped_calls: SkippedCalls, resumed: str
    ) -> Client:
        # Whether the session could ask the user and whether it ran with --yes shows in its events.
        events = [item.event for item in recording.envelopes]
        can_ask = any(isinstance(event, AskEvent) for event in events)
        denied = any(isinstance(event, ToolEnded) and event.status == "denied" for event in events)
        session_options = Options(
            cwd=recording.cwd,
            env=self._env,
            can_ask=can_ask,
            yes=not can_ask and not denied,
            resume=resumed,
            session_id="" if resumed else self._session,
            role="" if resumed else recording.opened_event.role,
        )
        info = _get_model_info(recording)
        return await open_session(
            session_options,
            tools=make_recorded_tools(recording.envelopes),
            provider=(model, info),
            small_model=(model, info),
            before_call=(skipped_calls,),
        )


def _get_verify_settings(recording: Recording) -> dict[str, Any]:
    """The recorded settings, off if there are none. Checks that the user had confirmed before count as configured."""
    settings = _as_dict(recording.opened_event.config.get("verify")) or {"mode": "off"}
    events = [item.event for item in recording.envelopes]
    asked = any(isinstance(event, QuestionsAsked) and event.call_id.startswith(CHECK_ID_PREFIX) for event in events)
    ran = next((event.verification.checks for event in events if isinstance(event, ChecksRan)), ())
    if ran and not asked:
        return {**settings, "commands": [check.command.replace("$", "$$") for check in ran]}
    return settings


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _get_model_info(recording: Recording) -> ModelInfo:
    """The model's properties, with the recorded context window."""
    try:
        info = lookup_model(recording.opened_event.model, {})
    except OdinError:
        info = ModelInfo(recording.opened_event.model)
    window = next(
        (item.event.context_window for item in recording.envelopes if isinstance(item.event, UsageRecorded)), 0
    )
    return msgspec.structs.replace(info, context=window or info.context, tools="native")


def format_report(report: ReplayReport, *, verbose: bool = False) -> str:
    """The report as text: "the same", or the first difference with both sides."""
    lines = [f"note: {note}" for note in report.notes]
    if report.scratch:
        lines.append(f"The copy is in {report.scratch}.")
    counted = f"{count_of(report.prompts, 'prompt')}, {count_of(report.calls, 'call')}"
    if report.same:
        return "\n".join([*lines, f"the same: {counted}"]) + "\n"
    shown = report.differences if verbose else report.differences[:1]
    for difference in shown:
        where = f"prompt {difference.prompt}, event {difference.seq}: " if difference.prompt else ""
        lines.append(f"{where}{difference.what}")
        for name, text in (("recorded", difference.recorded), ("replayed", difference.replayed)):
            lines.append(f"  {name}: {'' if text else '(nothing)'}")
            lines += [f"  | {line}" for line in text.split("\n") if text]
    more = len(report.differences) - len(shown)
    rest = f" ({count_of(more, 'more difference')}; see --verbose or --json)" if more else ""
    lines.append(f"different: {counted} replayed{rest}")
    return "\n".join(lines) + "\n"
