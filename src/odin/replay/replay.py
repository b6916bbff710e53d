"""`odin replay`: plays a session again in a scratch copy of its project and compares the two logs.

Calls that would reach out of the copy (network, files elsewhere, commands without a sandbox) are not made; their
recorded results are used instead.
"""

import os
from collections.abc import Callable, Container, Iterable
from contextlib import ExitStack
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
from odin.core.errors import LogDamaged, NeedsConfirmation, OdinError
from odin.core.event import CHECK_ID_PREFIX, ChecksRan, Envelope
from odin.core.format import pluralize
from odin.core.private_folders import open_scratch
from odin.core.provider import ModelInfo
from odin.core.server_tool import PREFIX, ServerTool
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput, fail
from odin.models.catalog import lookup_model
from odin.providers.playback import RecordedProvider
from odin.replay.comparison import Difference, compare_logs
from odin.replay.player import Player
from odin.replay.recording import (
    FOLDERS_PATH,
    PROJECT_PATH,
    SESSION_PATH,
    Recording,
    check_location,
    find_recording,
    list_prompts,
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

    def get_target(self, args: _RecordedArgs) -> Target:
        return Target(server_tool=self.server_tool)

    def parse(self, raw: dict[str, Any]) -> _RecordedArgs:
        return _RecordedArgs(raw)

    def redirect(self, raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
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
        paths = [Path(item.path) for item in context.resolved_paths or ()]
        is_inside = all(any(path.is_relative_to(folder) for folder in self._folders) for path in paths)
        return "" if is_inside else "calls on files outside the project"


_SERVER_TOOLS = ("ToolSearch", "McpCall", "ListMcpResources", "ReadMcpResource")


def make_recorded_tools(recorded: Iterable[Envelope]) -> list[Tool[Any]]:
    """Return the tools of language servers and MCP servers that were called in a recording."""
    called = {item.event.name for item in recorded if isinstance(item.event, ToolEnded)}
    names = {name for name in called if name.startswith(PREFIX) or name in _SERVER_TOOLS}
    wrapped = {"McpCall"} if names else set[str]()
    return [RecordedTool(name, names) for name in sorted(names | wrapped | (called & {"lsp"}))]


_KEPT_VARIABLES = ("ODIN_CACHE_DIR", "ODIN_COMMAND")
_OMITTED_KEYS = """
    providers web env_passthrough system_header hooks sandbox retry model small_model fallback_model confirm_timeout_s
    question_timeout_s additional_directories
"""


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
    import tempfile

    recording = find_recording(options.session, options.cwd, options.until)
    check_location(recording)
    with ExitStack() as stack:
        parent = get_state_dir(make_environment(cwd="/").variables) / SCRATCH_FOLDER
        private = stack.enter_context(open_scratch(parent))
        if options.keep:
            base = tempfile.mkdtemp(prefix="odin-replay-")
        else:
            temporary = tempfile.TemporaryDirectory(prefix="odin-replay-", ignore_cleanup_errors=True)
            base = stack.enter_context(temporary)
        return await _replay_in_copy(recording, options, Path(os.path.realpath(base)) / "project", private, report)


async def _replay_in_copy(
    recording: Recording, options: ReplayOptions, project: Path, private: Path, report: Callable[[str], None]
) -> ReplayReport:
    """Replay in `project`; the state and the configuration are in `private`, where the commands cannot write."""
    notes = make_scratch(recording, project)
    mark_root(recording, project)
    session = SessionStore(private / "state", str(project)).get_path(recording.header.session).parent
    copies: dict[str, str] = {}
    for number, other in enumerate(recording.list_others()):
        copies[other.root] = str(project.parent / f"folder-{number}")
        notes += make_scratch(other, Path(copies[other.root]))
    played = move_recording(recording, {recording.root: str(project), recording.folder: str(session), **copies})
    env = _write_config(played, private)
    if not Path(os.path.realpath(find_project_root(played.cwd, env))).is_relative_to(project):
        raise LogDamaged("The recording points outside its scratch copy, so it is not replayed.")
    commands = options.yes or await _can_sandbox(played.cwd, env)
    skipped_calls = SkippedCalls(played.envelopes, (str(project), str(session), *copies.values()), commands=commands)

    async def open_client(model: RecordedProvider, resumed: str) -> Client:
        return await _open_client(played, env, model, skipped_calls, resumed)

    log = session / LOG_NAME
    stuck = await Player(played, open_client, log, report).play()
    now = tuple(read_log(log)) if log.exists() else ()
    folders = {copy: f"{FOLDERS_PATH}/{number}" for number, copy in enumerate(copies.values())}
    rename = make_path_mover({str(project): PROJECT_PATH, str(session): SESSION_PATH, **folders})
    cut = ReplayScript(played.envelopes).cut_turns
    calls = [call for group in skipped_calls.skipped.values() for call in group]
    differences = compare_logs(played.envelopes, now, rename, cut_turns=cut, skipped=calls)
    if stuck:
        differences.append(Difference(1 << 62, "the replay did not finish", "", rename(stuck)))
    for reason, ids in skipped_calls.skipped.items():
        notes.append(f"Skipped, with their recorded results: {len(ids)} {reason}.")
    effects = ("modified", "denied", "context", "halted", "asked")
    hooks = sum(isinstance(item.event, HookRan) and item.event.outcome in effects for item in played.envelopes)
    if hooks:
        notes.append(f"Hooks are not run in a replay; in the recording, {hooks} had an effect.")
    return ReplayReport(
        session=recording.header.session,
        same=not differences,
        prompts=len(list_prompts(now)),
        calls=sum(isinstance(item.event, ToolEnded) for item in now),
        differences=tuple(differences),
        notes=tuple(notes),
        scratch=str(project) if options.keep else "",
    )


def _write_config(recording: Recording, private: Path) -> dict[str, str]:
    """Return an environment with the recorded settings, without those that reach outside: hooks, keys, sandbox."""
    config = recording.opened_event.config
    known = set(ConfigKeys.__struct_encode_fields__) - set(_OMITTED_KEYS.split())
    settings: dict[str, Any] = {key: value for key, value in config.items() if key in known}
    settings["verify"] = _get_verify_settings(recording)
    settings["claude_settings"] = False  # its rules are among those of the recording
    settings["retry"] = {**_as_dict(config.get("retry")), "base_s": 0.0, "max_s": 0.0}
    folder = private / "config"
    folder.mkdir(mode=0o700)
    (folder / "odinconfig.json").write_bytes(msgspec.json.encode(settings))
    env = make_environment(cwd="/").variables
    kept = {name: value for name, value in env.items() if not name.startswith("ODIN_") or name in _KEPT_VARIABLES}
    return {**kept, "ODIN_CONFIG_DIR": str(folder), "ODIN_STATE_DIR": str(private / "state")}


async def _can_sandbox(cwd: str, env: dict[str, str]) -> bool:
    """True if a sandbox is available to keep commands inside the copy."""
    try:
        sandbox = LazySandbox(load(cwd, env), make_environment(env, cwd)).get()
        await sandbox.probe()
        kind = sandbox.kind
        await sandbox.close()
    except (OdinError, OSError):
        return False
    return kind not in (None, "none")


async def _open_client(
    recording: Recording, env: dict[str, str], model: RecordedProvider, skipped_calls: SkippedCalls, resumed: str
) -> Client:
    # Whether the session could ask the user and whether it ran with --yes shows in its events.
    events = [item.event for item in recording.envelopes]
    can_ask = any(isinstance(event, AskEvent) for event in events)
    denied = any(
        isinstance(event, ToolEnded) and (event.status == "denied" or event.error_kind == NeedsConfirmation.__name__)
        for event in events
    )
    options = Options(
        cwd=recording.cwd,
        env=env,
        can_ask=can_ask,
        yes=not can_ask and not denied,
        commands_ask="effects" if recording.opened_event.commands_ask == "effects" else "before",
        resume=resumed,
        session_id="" if resumed else recording.header.session,
        role="" if resumed else recording.opened_event.role,
        add_dirs=tuple(f"{root.path}{'' if root.is_writable else ':ro'}" for root in recording.opened_event.roots),
    )
    try:
        info = lookup_model(recording.opened_event.model, {})
    except OdinError:
        info = ModelInfo(recording.opened_event.model)
    window = next((event.context_window for event in events if isinstance(event, UsageRecorded)), 0)
    info = msgspec.structs.replace(info, context=window or info.context, tools="native")
    return await open_session(
        options,
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


def format_report(report: ReplayReport, *, verbose: bool = False) -> str:
    """The report as text: "the same", or the first difference with both sides."""
    lines = [f"note: {note}" for note in report.notes]
    if report.scratch:
        lines.append(f"The copy is in {report.scratch}.")
    counted = f"{pluralize(report.prompts, 'prompt')}, {pluralize(report.calls, 'call')}"
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
    rest = f" ({pluralize(more, 'more difference')}; see --verbose or --json)" if more else ""
    lines.append(f"different: {counted} replayed{rest}")
    return "\n".join(lines) + "\n"
