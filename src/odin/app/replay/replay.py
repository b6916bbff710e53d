"""`odin replay`: a session is played again in a scratch copy of its project, and compared with what was recorded."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from odin.app.compose import open_session
from odin.app.replay.absent import Absent
from odin.app.replay.compare import Difference, compare
from odin.app.replay.lines import script_of
from odin.app.replay.player import Player
from odin.app.replay.recording import PROJECT, SESSION, Recording, find_recording, moved, mover, until
from odin.app.replay.scratch import check_place, make_scratch, mark_root, within
from odin.app.sandbox import Confined
from odin.config import Options, load
from odin.config.keys import Keys
from odin.config.places import project_root
from odin.core.client import Client
from odin.core.errors import LogDamaged, OdinError
from odin.core.event import (
    Compacted,
    Envelope,
    HookRan,
    PermissionAsked,
    QuestionsAsked,
    ToolEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.provider import ModelInfo
from odin.providers.catalog import lookup
from odin.providers.recorded import Recorded
from odin.session.log import read_log
from odin.session.store import LOG_NAME, Store

_OWN = ("ODIN_CACHE_DIR", "ODIN_COMMAND")
_NOT_AGAIN = (
    "providers",
    "web",
    "keep_env",
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


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `yes` runs commands also where no sandbox keeps them in the copy."""

    session: str
    cwd: str = ""
    until: int = 0
    keep: bool = False
    json: bool = False
    verbose: bool = False
    yes: bool = False


class Report(msgspec.Struct, frozen=True):
    """What came of it. `notes` say what could not be as it was; `scratch` is where the copy is, when it was kept."""

    session: str
    same: bool
    prompts: int
    calls: int
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    scratch: str = ""


async def replay(wish: Wish, tell: Callable[[str], None] = lambda line: None) -> Report:
    recording = find_recording(wish.session, wish.cwd)
    if wish.until:
        recording = until(recording, wish.until)
    import tempfile

    if wish.keep:
        base = Path(os.path.realpath(tempfile.mkdtemp(prefix="odin-replay-")))
        return await _play(recording, base, wish, tell)
    with tempfile.TemporaryDirectory(prefix="odin-replay-", ignore_cleanup_errors=True) as folder:
        return await _play(recording, Path(os.path.realpath(folder)), wish, tell)


async def _play(recording: Recording, base: Path, wish: Wish, tell: Callable[[str], None]) -> Report:
    house = _House(recording, base)
    check_place(recording)
    notes = make_scratch(recording, house.project, outside=(os.path.realpath(house.old_state),))
    mark_root(recording, house.project)
    played = moved(recording, {recording.root: str(house.project), recording.folder: str(house.session)})
    house.check_inside(played.cwd)
    house.write_config(played)
    commands = wish.yes or house.confines(played.cwd)
    absent = Absent(played.envelopes, (str(house.project), str(house.session)), commands=commands)

    async def opens(model: Recorded, resumed: str) -> Client:
        return await house.open(played, model, absent, resumed)

    log = house.session / LOG_NAME
    stuck = await Player(played, opens, log, tell).play()
    now = tuple(read_log(log)) if log.exists() else ()
    rename = mover({str(house.project): PROJECT, str(house.session): SESSION})
    cut = script_of(played.envelopes).cut
    calls = [call for group in absent.left_out.values() for call in group]
    found = compare(played.envelopes, now, rename, cut=cut, left_out=calls)
    if stuck:
        found.append(Difference(1 << 62, "the replay did not come to its end", "", rename(stuck)))
    notes += [
        f"Not made again, with their recorded results: {len(made)} {why}." for why, made in absent.left_out.items()
    ]
    notes += [*_about_hooks(recording), *_about_summaries(played.envelopes, now)]
    return Report(
        session=recording.header.session,
        same=not found,
        prompts=sum(isinstance(item.event, TurnStarted) and not item.agent for item in now),
        calls=sum(isinstance(item.event, ToolEnded) for item in now),
        differences=tuple(found),
        notes=tuple(notes),
        scratch=str(house.project) if wish.keep else "",
    )


def _about_hooks(recording: Recording) -> list[str]:
    told = {"modified", "denied", "context", "halted", "asked"}
    heard = sum(isinstance(item.event, HookRan) and item.event.outcome in told for item in recording.envelopes)
    return [f"Hooks are not run in a replay; in the recording {heard} of them had a say."] if heard else []


def _about_summaries(then: Iterable[Envelope], now: Iterable[Envelope]) -> list[str]:
    before, after = (sum(isinstance(item.event, Compacted) for item in side) for side in (then, now))
    return (
        [f"The conversation was summarised {after} times, in the recording {before} times."] if before != after else []
    )


class _House:
    """The scratch copy and what belongs to it: a state folder and settings of its own."""

    def __init__(self, recording: Recording, base: Path) -> None:
        self.project = base / "project"
        self.state = base / "state"
        self._config = base / "config"
        self._session = recording.header.session
        self.session = Store(self.state, str(self.project)).path_of(self._session).parent
        self.old_state = recording.store.parent.parent if recording.store is not None else base
        self._env = self._environment(os.environ)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in env.items() if not name.startswith("ODIN_") or name in _OWN}
        return {**kept, "ODIN_CONFIG_DIR": str(self._config), "ODIN_STATE_DIR": str(self.state)}

    def write_config(self, recording: Recording) -> None:
        """What was set then is set now, but for what reaches out: no hook, no key, and commands in a sandbox."""
        known = set(Keys.__struct_encode_fields__) - set(_NOT_AGAIN)
        settings: dict[str, Any] = {key: value for key, value in recording.opened.config.items() if key in known}
        settings["retry"] = {**_dict(recording.opened.config.get("retry")), "base_s": 0.0, "max_s": 0.0}
        self._config.mkdir(mode=0o700)
        (self._config / "odinconfig.json").write_bytes(msgspec.json.encode(settings))

    def check_inside(self, cwd: str) -> None:
        """Whatever the recording says: the session works in the copy, and so do its commands."""
        if not within(cwd, self.project) or not within(project_root(cwd, self._env), self.project):
            raise LogDamaged("The recording leads out of its scratch copy, so it is not played.")

    def confines(self, cwd: str) -> bool:
        """Whether a sandbox keeps commands in the copy."""
        try:
            sandbox = Confined(load(cwd, self._env), self._env).get()
            sandbox.prove()
            kind = sandbox.kind
            sandbox.kill()
        except (OdinError, OSError):
            return False
        return kind not in (None, "none")

    async def open(self, recording: Recording, model: Recorded, absent: Absent, resumed: str) -> Client:
        can_ask, yes = _manners(recording)
        options = Options(
            cwd=recording.cwd,
            env=self._env,
            can_ask=can_ask,
            yes=yes,
            resume=resumed,
            session_id="" if resumed else self._session,
        )
        info = _model_info(recording)
        return await open_session(options, provider=(model, info), lesser=(model, info), before=(absent,))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _manners(recording: Recording) -> tuple[bool, bool]:
    """Whether somebody could be asked, and whether everything was allowed: the log knows only what came of it."""
    events = [item.event for item in recording.envelopes]
    asked = any(isinstance(event, PermissionAsked | QuestionsAsked) for event in events)
    denied = any(isinstance(event, ToolEnded) and event.status == "denied" for event in events)
    return asked, not asked and not denied


def _model_info(recording: Recording) -> ModelInfo:
    """What was known of the model then, as far as it was recorded."""
    try:
        info = lookup(recording.opened.model, {})
    except OdinError:
        info = ModelInfo(recording.opened.model)
    window = next((item.event.context for item in recording.envelopes if isinstance(item.event, UsageRecorded)), 0)
    return msgspec.structs.replace(info, context=window or info.context, tools="native")


def report_text(report: Report, *, verbose: bool = False) -> str:
    """For people: the same, or the first difference with both sides."""
    lines = [f"note: {note}" for note in report.notes]
    if report.scratch:
        lines.append(f"The copy is in {report.scratch}.")
    counted = f"{_many(report.prompts, 'prompt')}, {_many(report.calls, 'call')}"
    if report.same:
        return "\n".join([*lines, f"the same: {counted}"]) + "\n"
    shown = report.differences if verbose else report.differences[:1]
    for difference in shown:
        lines += _both_sides(difference)
    more = len(report.differences) - len(shown)
    rest = f" ({_many(more, 'more difference')}; all of them with --verbose or --json)" if more else ""
    lines.append(f"different: {counted} were played{rest}")
    return "\n".join(lines) + "\n"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _both_sides(difference: Difference) -> list[str]:
    where = f"prompt {difference.prompt}, event {difference.seq}: " if difference.prompt else ""
    return [
        f"{where}{difference.what}",
        *_side("recorded", difference.recorded),
        *_side("replayed", difference.replayed),
    ]


def _side(name: str, text: str) -> list[str]:
    return [f"  {name}: {'(nothing)' if not text else ''}", *(f"  | {line}" for line in text.split("\n") if text)]
