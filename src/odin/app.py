"""The composition root: the only file that knows everyone. It turns options into a session that front ends can use."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from odin import __version__
from odin.bus.hub import Hub
from odin.config import Config, Options, load, make_private, state_dir
from odin.context.files import FileCache
from odin.context.instructions import load_instructions
from odin.context.prompt import Prompter
from odin.core.client import SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import CachedFile, Envelope, Mode, SessionOpened
from odin.core.provider import ModelInfo, Provider
from odin.core.registry import Registry, canonical
from odin.core.tool import Tool
from odin.engine.agent import Agent
from odin.engine.asker import Asker
from odin.engine.gate import Gate
from odin.engine.local import LocalClient
from odin.engine.loop import Kit, Limits, Planner
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy
from odin.policy.modes import mode_of, spec_of
from odin.policy.rules import Policy
from odin.policy.sandbox import ProcessRunner
from odin.providers.http import Http
from odin.session.log import SessionLog, read_header, read_log
from odin.session.state import State
from odin.session.store import Store
from odin.tools import standard_tools

BRIEF_WINDOW = 16_384
"""Models with a window up to this size get the short prompt and the short tools."""

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or see `odin models`."
)


async def open_session(
    options: Options, *, tools: Sequence[Tool[Any]] = (), provider: tuple[Provider, ModelInfo] | None = None
) -> LocalClient:
    """Begin or resume a session. `tools` are added to the standard ones; `provider` replaces the configured model."""
    env = options.env if options.env is not None else os.environ
    cwd = os.path.realpath(options.cwd or Path.cwd())
    if not Path(cwd).is_dir():
        raise UsageError(f"There is no folder {cwd}.", "Name an existing one with --cwd.")
    config = load(cwd, env, options.flags())
    store = Store(make_private(Path(options.state_dir) if options.state_dir else state_dir(env)), config.root)
    log, past = _open_log(store, options, cwd)
    models = Models(config, env)
    if provider is not None:
        models.use(*provider)
    else:
        await models.choose(config.model)
    return _Composition(options, config, env, cwd, log, past, models, tools).client


def _open_log(store: Store, options: Options, cwd: str) -> tuple[SessionLog, list[Envelope]]:
    if options.resume and options.continue_last:
        raise UsageError("Both --resume and --continue were given.", "Use one of them.")
    resumed = options.resume or (store.latest() if options.continue_last else "")
    if not resumed:
        return store.create(cwd, options.session_id), []
    log = store.open(resumed)
    past = list(read_log(log.path))
    if not options.fork:
        return log, past
    copy = store.create(cwd, options.session_id)
    for envelope in past:
        copy.append(msgspec.structs.replace(envelope, session=copy.session))
    return copy, past


class Models:
    """The model in use and how it was found. A new one takes effect with the next request."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._config = config
        self._env = env
        self._http = Http(env=env)
        self._open: list[Provider] = []
        self.notice = ""

    def use(self, provider: Provider, info: ModelInfo) -> None:
        self.provider = provider
        self.info = info
        self._open.append(provider)

    @property
    def ref(self) -> str:
        return f"{self.info.provider}/{self.info.id}" if self.info.provider else self.info.id

    async def choose(self, ref: str) -> str:
        """Connect to the named model; with no name to the first that can be found, and at last to the offline planner."""
        from odin.providers.catalog import connect, default_ref

        ref = ref or default_ref(self._config.providers, self._env) or await self._local()
        if not ref or ref.split("/")[0] == "offline":
            self._offline(asked_for=bool(ref))
            return self.ref
        provider, info = connect(ref, self._config.providers, self._env, self._http)
        if info.tools != "native":
            from odin.providers.contract import AdaptiveTools

            provider = AdaptiveTools(provider, info.tools)
        self.use(provider, info)
        return self.ref

    async def _local(self) -> str:
        from odin.providers.local import discover

        for server in await discover(self._env, self._http):
            for model in server.models:
                self.notice = f"Using {model.provider}/{model.id}, found on this machine ({server.base_url})."
                return f"{model.provider}/{model.id}"
        return ""

    def _offline(self, asked_for: bool) -> None:
        from odin.providers.offline import OfflinePlanner

        self.notice = "" if asked_for else OFFLINE_NOTICE
        self.use(OfflinePlanner(), ModelInfo("planner", "offline", tools="native"))

    async def close(self) -> None:
        for provider in self._open:
            await provider.close()
        await self._http.close()


class _Composition:
    """Every part of one session, put together once."""

    def __init__(
        self,
        options: Options,
        config: Config,
        env: Mapping[str, str],
        cwd: str,
        log: SessionLog,
        past: list[Envelope],
        models: Models,
        extra_tools: Sequence[Tool[Any]],
    ) -> None:
        self._options = options
        self._config = config
        self._cwd = cwd
        self._log = log
        self._models = models
        self._planners: dict[tuple[str, Mode], Planner] = {}
        self._fresh: list[CachedFile] = []
        state = State.fold(past, log.session)
        self._recorder = Recorder(log, state, Hub())
        self._runner = ProcessRunner(log.path.parent / "outputs", environ=env, keep_env=config.keep_env)
        self._files = FileCache()
        self._files.restore(state.files)
        self._told = self._files.mark()
        self._registry = self._make_registry(extra_tools)
        self._asker = Asker(self._recorder, can_ask=options.can_ask)
        self._instructions = load_instructions(config.root)
        self._prompter = self._make_prompter()
        self._gate = self._make_gate()
        self.client = self._make_client(resumed=bool(past))

    def _make_policy(self) -> Policy:
        config, options = self._config, self._options
        return Policy(
            root=config.root,
            cwd=self._cwd,
            permission_mode=config.permission_mode,
            yes=options.yes,
            allowed_commands=config.allowed_commands,
            forbidden_commands=config.forbidden_commands,
            allowed_tools=config.allowed_tools,
            disallowed_tools=config.disallowed_tools,
            restrict_to_workspace=config.restrict_to_workspace,
        )

    def _make_registry(self, extra: Sequence[Tool[Any]]) -> Registry:
        tools = [*standard_tools(files=self._files, runner=self._runner), *extra]
        wanted = None if self._options.tools is None else {canonical(name) for name in self._options.tools}
        disabled = {name for name in self._config.disallowed_tools if "(" not in name}
        if wanted is not None:
            disabled |= {tool.name for tool in tools if tool.name not in wanted}
        return Registry(tools, disabled=disabled)

    def _make_prompter(self) -> Prompter:
        return Prompter(
            header=self._config.system_header,
            base=self._options.system_prompt,
            append=self._options.append_system_prompt,
            instructions=self._instructions.text,
            allowed=self._config.allowed_commands,
            forbidden=self._config.forbidden_commands,
        )

    def _make_gate(self) -> Gate:
        return Gate(
            registry=self._registry,
            policy=self._make_policy(),
            asker=self._asker,
            recorder=self._recorder,
            seen_files=self._seen_files,
        )

    def _seen_files(self) -> Sequence[CachedFile]:
        seen = self._files.changed_since(self._told)
        self._told = self._files.mark()
        self._fresh.extend(seen)
        return seen

    def _take_fresh(self) -> list[CachedFile]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def _kit_for(self, mode: Mode) -> Kit:
        config = self._config
        return Kit(
            recorder=self._recorder,
            gate=self._gate,
            limits=Limits(
                max_turns=config.max_turns,
                max_budget_usd=config.max_budget_usd,
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                thinking=config.thinking,
                default_response=config.default_response,
            ),
            retry=RetryPolicy(attempts=config.retry.attempts, base_s=config.retry.base_s, max_s=config.retry.max_s),
            planner=lambda: self._planner(mode),
            fresh_files=self._take_fresh,
        )

    def _planner(self, mode: Mode) -> Planner:
        key = (self._models.ref, mode)
        if key not in self._planners:
            info = self._models.info
            offered = self._registry.offered(spec_of(mode).visible)
            brief = 0 < info.context <= BRIEF_WINDOW
            specs = tuple(tool.spec() for tool in offered)
            if info.context:
                from odin.providers.contract import for_window

                specs = for_window(specs, tuple(tool.spec(brief=True) for tool in offered), info.context)
            self._planners[key] = Planner(self._models.provider, info, self._prompter.system(mode, brief), specs)
        return self._planners[key]

    def _make_client(self, resumed: bool) -> LocalClient:
        agent = Agent(recorder=self._recorder, kit_for=self._kit_for, cwd=self._cwd, root=self._config.root)
        opened = SessionOpened(
            cwd=self._cwd,
            model=self._models.ref,
            version=__version__,
            resumed=resumed,
            instructions=self._instructions.text,
            config=self._config.public(),
        )
        return LocalClient(
            agent=agent,
            asker=self._asker,
            recorder=self._recorder,
            opened=opened,
            info=self._info,
            past=self._past,
            set_model=self._models.choose,
            set_permission_mode=self._set_permission_mode,
            on_close=self._close,
        )

    def _info(self) -> SessionInfo:
        mode = mode_of(self._config.mode)
        warnings = (*self._config.warnings, *filter(None, (self._instructions.warning,)))
        return SessionInfo(
            session=self._log.session,
            cwd=self._cwd,
            model=self._models.ref,
            version=__version__,
            mode=mode,
            permission_mode=self._gate.policy.permission_mode,
            tools=tuple(tool.name for tool in self._registry.offered(spec_of(mode).visible)),
            notice=self._models.notice,
            warnings=warnings,
        )

    def _past(self) -> Iterator[Envelope]:
        return read_log(self._log.path) if self._log.path.exists() else iter(())

    def _set_permission_mode(self, mode: str) -> str:
        self._gate.policy = self._gate.policy.with_permission_mode(mode)
        return self._gate.policy.permission_mode

    async def _close(self) -> None:
        await self._runner.close()
        await self._models.close()


def standard_registry(cwd: str = "") -> Registry:
    """The standard tools by themselves, for programs that bring their own loop."""
    runner = ProcessRunner(spill_dir=Path(cwd or Path.cwd()) / ".odin" / "outputs")
    return Registry(standard_tools(files=FileCache(), runner=runner))


class SessionRow(msgspec.Struct, frozen=True):
    id: str
    when: str
    title: str
    turns: int


def list_sessions(cwd: str = "") -> list[SessionRow]:
    """The sessions of the project around `cwd`, newest first, each with its first prompt."""
    import time

    config = load(os.path.realpath(cwd or Path.cwd()), os.environ, {})
    rows: list[SessionRow] = []
    for entry in Store(state_dir(os.environ), config.root).list():
        try:
            read_header(entry.path)
        except OdinError:
            continue
        shot = State.fold(read_log(entry.path)).snapshot()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified))
        rows.append(SessionRow(entry.id, when, shot.title, len(shot.messages)))
    return rows
