"""Puts the parts of one session together."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from odin import __version__
from odin.app.attaching import Attacher
from odin.app.attaching import Means as AttachMeans
from odin.app.branch import branch_of
from odin.app.checkpoints import Checkpoints
from odin.app.chosen import Choice, choose_model
from odin.app.compaction import Keepers
from odin.app.fallback import Fallback
from odin.app.finding import Finder
from odin.app.hooks import HookBook
from odin.app.logfile import log_path
from odin.app.models import Models
from odin.app.opening import Opened, Place, open_log, place_of
from odin.app.preview import preview
from odin.app.rules import open_rulebook, policy_of
from odin.app.sandbox import Confined
from odin.app.secrets import redactor, stored
from odin.app.surroundings import Surroundings
from odin.app.toolset import hidden, unknown_names
from odin.app.web import Web
from odin.bus.hub import Hub
from odin.config import Options, home_dir
from odin.context.files import FileCache
from odin.context.instructions import load_instructions, renewed
from odin.context.prompt import Assembler, Prompter
from odin.context.writers import Writers
from odin.core.client import ContextReport, SessionInfo
from odin.core.compactor import Compactor
from odin.core.event import CachedFile, Envelope, InstructionsChanged, Mode, SessionOpened
from odin.core.provider import ModelInfo, Provider
from odin.core.registry import Registry
from odin.core.text import mended
from odin.core.tool import AskPerson, Kind, Tool
from odin.engine.agent import Agent
from odin.engine.asker import Asker
from odin.engine.budget import Budget
from odin.engine.call.gate import Before, Gate
from odin.engine.call.hooking import Desk
from odin.engine.call.standin import KeepsSecrets
from odin.engine.expanding import Expanding
from odin.engine.kit import Kit, Limits, Planner
from odin.engine.lesser import Lesser
from odin.engine.local import LocalClient
from odin.engine.own_commands import OwnCommands
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy
from odin.engine.rulenews import RuleNews
from odin.engine.team import Team
from odin.engine.titler import give_title
from odin.engine.turnhooks import TurnHooks, Watchers
from odin.engine.wake import Waker
from odin.policy.modes import mode_of, spec_of
from odin.policy.process.background import Background
from odin.policy.process.runner import ProcessRunner
from odin.session.grants import Grants, brought
from odin.session.log import read_log
from odin.session.state import State
from odin.tools import Services, standard_tools
from odin.tools.agent import AgentTool

if TYPE_CHECKING:
    from odin.context.library import Library
    from odin.engine.autopilot import Autopilot

SMALL_WINDOW = 16_384
"""Models with a window up to this size get the short prompt."""

MIDDLE_WINDOW = 32_768
"""Models with a window up to this size get short tools, and few of them when the window is small."""


async def open_session(
    options: Options,
    *,
    tools: Sequence[Tool[Any]] = (),
    provider: tuple[Provider, ModelInfo] | None = None,
    assembler: Assembler | None = None,
    compactor: Compactor | None = None,
    opened: Opened | None = None,
    lesser: tuple[Provider, ModelInfo] | None = None,
    before: Sequence[Before] = (),
) -> LocalClient:
    """Begin or resume a session.

    `tools` are added to the standard ones; `provider` replaces the configured model and `assembler` the system prompt.
    `compactor` decides when a long conversation is summarised and how, in the place of the configuration.
    `opened` is the log to work on when it was opened already; it is closed when this fails. `lesser` does the small
    jobs and whatever else another model would be asked for; `before` are steps that every call passes before it runs.
    """
    try:
        place = place_of(options)
        opened = opened or open_log(place.store, options, place.cwd)
        models, choice = Models(place.config, place.env, reach_out=options.reach_out), Choice()
        if provider is not None:
            models.use(*provider, lesser)
        else:
            choice = await choose_model(models, place.config, opened.past)
        return _Composition(options, place, opened, models, choice, tools, assembler, compactor, before).client
    except BaseException:
        if opened is not None:
            opened.log.close()
        raise


class _Composition:
    """Every part of one session, put together once."""

    def __init__(
        self,
        options: Options,
        place: Place,
        opened: Opened,
        models: Models,
        choice: Choice,
        extra_tools: Sequence[Tool[Any]],
        assembler: Assembler | None,
        compactor: Compactor | None,
        before: Sequence[Before],
    ) -> None:
        self._options = options
        self.before = before
        config, env, cwd = place.config, place.env, place.cwd
        self._config = config
        self._env = env
        self._cwd = cwd
        self._log = log = opened.log
        past = opened.past
        self._models = models
        self._choice = choice
        self.speculates = config.speculate
        self._writers = Writers()
        self._planners: dict[tuple[str, Mode, tuple[str, ...]], Planner] = {}
        state = State.fold(past, log.session, self._past)
        self.recorder = Recorder(log, state, Hub(), inherited=log.header.forked_seq)
        self.sandbox = Confined(config, env, state=options.state_dir, shown=(str(log.path.parent),))
        self._runner = ProcessRunner(
            log.path.parent / "outputs", environ=env, keep_env=config.keep_env, sandbox=self.sandbox.get
        )
        self.hooks = self._make_hooks()
        self.asker = Asker(
            self.recorder,
            hooks=self.hooks,
            can_ask=options.can_ask,
            patience=config.question_timeout_s,
            confirm_timeout=config.confirm_timeout_s,
        )
        self._had = Grants(state.rules, state.permission_chosen, state.budget_usd)
        self._grants = granted = state.grants(mended(config.root))
        self.rulebook = open_rulebook(config, env, granted.rules)
        self.rules = RuleNews(self.rulebook, self.recorder)
        self.policy = policy_of(config, options, cwd, self.rulebook, granted.permission, str(log.path.parent))
        self.limits = self._make_limits()
        self.budget = self._make_budget(place.store.folder.parent)
        self.retry = RetryPolicy(attempts=config.retry.attempts, base_s=config.retry.base_s, max_s=config.retry.max_s)
        self.redact = redactor(config, env, past)
        self._waker = Waker(self.recorder, self.redact)
        self._background = Background(
            self._runner, log.path.parent / "spawn-logs", taken=state.spawn_count, listener=self._waker
        )
        self._team = Team(recorder=self.recorder, kit_for=self._sub_kit, cwd=cwd, root=config.root, waker=self._waker)
        self.checkpoints = Checkpoints(
            config,
            self.recorder,
            log.path,
            str(home_dir(env)),
            running=self._running_calls,
            forget=lambda: self._main.forget(),
        )
        self._lesser = Lesser(models.lesser, self.recorder, self.budget)
        self.keepers = Keepers(config, self.recorder, self.budget, log.path.parent, cwd, models.named, compactor)
        self.fallback = Fallback(models, config.fallback_model, self.recorder)
        self._web = Web(config.web, env)
        self._extra_tools = extra_tools
        self._instructions = load_instructions(config.root, cwd)
        self._instructions_stale = False
        self._prompter = assembler or self._make_prompter()
        self.source = opened.source
        self.watchers = Watchers()
        self._main = _Workplace(self, "", AgentTool(self._team.run))
        self._main.restore(state.files)
        self._finder = Finder(cwd, recent=lambda: self.recorder.state.files, env=env)
        self.client = self._make_client(resumed=bool(past))
        self._titler = None if state.title else asyncio.create_task(give_title(self.recorder, self._lesser))

    def _make_hooks(self) -> HookBook:
        return HookBook(
            self._config.declared.get("hooks", ()),
            session=self._log.session,
            transcript=str(self._log.path),
            cwd=self._cwd,
            root=self._config.root,
            runner=self._runner,
            emit=self.recorder.emit,
            redact=lambda text: self.redact(text),
            swapped=self._config.trust.swapped,
            permission_mode=lambda: self.policy.permission_mode,
            model=lambda: self._models.ref,
        )

    def new_cache(self, agent: str) -> FileCache:
        read_first = self._config.read_before_edit
        return FileCache(self._config.cache, read_first=read_first, writers=self._writers, agent=agent)

    def registry(self, agent: str, files: FileCache, desk: Desk, *more: Tool[Any]) -> Registry:
        """The tools of one agent. They are its own because they share what it has read."""
        services = Services(
            files=files,
            runner=self._runner,
            folder=self._log.path.parent,
            root=self._config.root,
            instructions_written=self._renew_instructions,
            lesser=lambda job, text: self._lesser.ask(job, self.redact(text).text, agent),
            fetch=self._web.fetch,
            search=self._web.search,
            collected=lambda: self.recorder.state.collected(agent),
            person=self._person(agent) if self.asker.can_ask else None,
            background=self._background,
            hooks=desk,
        )
        tools = [*standard_tools(services), *self._extra_tools, *more]
        wanted = self._options.tools
        return Registry(tools, disabled=hidden(tools, self.rulebook.denials, wanted), wanted=wanted or ())

    def _person(self, agent: str) -> AskPerson:
        return lambda call_id, questions: self.asker.ask_questions(call_id, questions, agent)

    def _renew_instructions(self) -> None:
        """ODIN.md was written anew: the next prompt begins with it. The running one keeps what was sent before."""
        self._instructions_stale = True

    def _main_kit(self, mode: Mode) -> Kit:
        self.fallback.go_home()
        if self._instructions_stale:
            self._instructions_stale = False
            self._instructions = renewed(self._instructions, self._config.root)
            self.recorder.emit(InstructionsChanged(self._instructions.text))
            if isinstance(self._prompter, Prompter):
                self._prompter = msgspec.structs.replace(self._prompter, instructions=self._instructions.own)
            self._planners.clear()
        return self._main.kit(mode)

    def _make_prompter(self) -> Prompter:
        return Prompter(
            header=self._config.system_header,
            base=self._options.system_prompt,
            append=self._options.append_system_prompt,
            instructions=self._instructions.own,
            guides=self._instructions.told,
            allowed=self._config.allowed_commands,
            forbidden=self._config.forbidden_commands,
        )

    def _make_budget(self, projects: Path) -> Budget:
        config, state = self._config, self.recorder.state
        usual, chosen = config.max_budget_usd, self._options.max_budget_usd
        earlier = self._grants.budget_usd
        if not config.max_budget_usd_per_day:
            return Budget(self.recorder, usual=usual, chosen=chosen, earlier=earlier)
        from odin.app.usage import Today

        today = Today(projects, lambda: state.cost_usd)
        per_day = config.max_budget_usd_per_day
        return Budget(self.recorder, usual=usual, chosen=chosen, earlier=earlier, per_day=per_day, today=today)

    def _make_limits(self) -> Limits:
        config = self._config
        return Limits(
            max_turns=config.max_turns,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            thinking=config.thinking,
            default_response=config.default_response,
        )

    def save_output(self, text: str) -> str:
        """Keep the whole of a result that is too long for the model, and say where."""
        folder = self._log.path.parent / "outputs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"result-{time.time_ns():x}.txt"
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = mended(text).encode()
        path.write_bytes(data)
        return str(path)

    def _sub_kit(self, mode: Mode, name: str) -> Kit:
        """A sub-agent has tools and a file cache of its own, and no AgentTool in any mode."""
        return _Workplace(self, name).kit(mode)

    def planner(self, mode: Mode, registry: Registry) -> Planner:
        """The model with its prompt and tools. Made once per mode: what was sent before must not change."""
        key = (self._models.ref, mode, registry.names())
        if key not in self._planners:
            info = self._models.info
            offered = registry.offered(spec_of(mode).visible)
            specs = tuple(tool.spec() for tool in offered)
            if 0 < info.context <= MIDDLE_WINDOW:
                from odin.providers.contract import for_window

                specs = for_window(specs, tuple(tool.spec(brief=True) for tool in offered), info.context)
            system = self._prompter.system(mode, brief=0 < info.context <= SMALL_WINDOW)
            self._planners[key] = Planner(self._models.provider, info, system, specs)
        return self._planners[key]

    def _make_client(self, resumed: bool) -> LocalClient:
        agent = Agent(
            recorder=self.recorder,
            kit_for=self._main_kit,
            cwd=self._cwd,
            root=self._config.root,
            mode_for=self._narrowed,
            rests=self._main.hooks.rests,
            lane=self._config.queue.lane,
            one_at_a_time=self._config.queue.steering == "one-at-a-time",
            steered=lambda: self.asker.take_back(""),
            attachments=(attachments := self._make_attachments()),
        )
        self._waker.enter(agent)
        self._surroundings = Surroundings(
            self._config.root, self._env, lambda text: agent.remark(self.redact(text).text), wanted=not resumed
        )
        opened = SessionOpened(
            cwd=mended(self._cwd),
            model=self._models.ref,
            version=__version__,
            resumed=resumed,
            instructions=self._instructions.text,
            config=self._config.public(),
            root=mended(self._config.root),
            model_chosen=self._choice.chosen,
            permission_mode=self.policy.permission_mode,
        )
        return LocalClient(
            agent=agent,
            asker=self.asker,
            recorder=self.recorder,
            opened=opened,
            info=self._info,
            past=self._past,
            set_model=self._set_model,
            set_permission_mode=self._set_permission_mode,
            background=self._background,
            checkpoints=self.checkpoints,
            rules=self.rules,
            hooks=self._main.hooks,
            add_hook=self.hooks.add,
            redact=self.redact,
            commands=OwnCommands(self._runner, self.recorder, self.redact, self._cwd, agent.add_context),
            budget=self.budget,
            context=self._context,
            models=self._models.choices,
            look_around=self._surroundings.look,
            expanding=Expanding(self._library, self.recorder, trusted=self._config.trust.trusted),
            make_pilot=self._make_pilot,
            summaries=self.keepers.by_hand(lambda mode: self.planner(mode, self._main.registry)),
            on_close=self._close,
            attachments=attachments,
            find_files=self._finder,
        )

    def _make_attachments(self) -> Attacher:
        return Attacher(
            AttachMeans(
                cwd=self._cwd,
                root=self._config.root,
                home=str(home_dir(self._env)),
                session=self._log.session,
                folder=self._log.path.parent,
                files=self._main.files,
                runner=self._runner,
                policy=lambda: self.policy,
                redact=self.redact,
                seen=self._main.attached,
                window=lambda: self._models.info.context,
                sees=lambda: self._models.info.images,
            )
        )

    def _library(self) -> "Library":
        from odin.app.library import command_library

        return command_library(self._config, self._env)

    def _make_pilot(self) -> "Autopilot":
        from odin.engine.autopilot import Autopilot

        return Autopilot(self.recorder, self._kind_of)

    def _kind_of(self, name: str) -> Kind | None:
        tool = self._main.registry.get(name)
        return None if tool is None else tool.kind

    def _context(self) -> ContextReport:
        from odin.engine.meter import context_report

        planner = self.planner(self.recorder.state.mode, self._main.registry)
        limit, threshold, expected = self.keepers.sizes(planner)
        report = context_report(self.recorder.state, planner, limit=limit, threshold=threshold, expected=expected)
        return msgspec.structs.replace(report, compacting=self.keepers.running)

    def _info(self) -> SessionInfo:
        mode = self._narrowed(mode_of(self._config.mode))
        own = (self._instructions.warning, self._models.warning, self._web.warning, self.sandbox.warning())
        said = (*own, self._choice.warning, brought(self._had, self._grants), *self._unknown_tools())
        warnings = (*self._config.warnings, *self.rulebook.warnings, *self.hooks.warnings, *filter(None, said))
        return SessionInfo(
            session=self._log.session,
            cwd=self._cwd,
            model=self._models.ref,
            version=__version__,
            mode=mode,
            permission_mode=self.policy.permission_mode,
            tools=tuple(tool.name for tool in self._main.registry.offered(spec_of(mode).visible)),
            notice=self._models.notice,
            sandbox=self.sandbox.describe(),
            budget_usd=self.budget.limit,
            warnings=warnings,
            model_chosen=self._choice.chosen,
            branch=branch_of(self._cwd),
            confirm_timeout_s=self._config.confirm_timeout_s,
            question_timeout_s=self._config.question_timeout_s,
            log_file=str(log_path(self._env)),
        )

    def _unknown_tools(self) -> list[str]:
        registry = self._main.registry
        tools = [tool for name in registry.names() if (tool := registry.get(name))]
        return unknown_names(tools, (line.text for line in self.rulebook.lines()), self._options.tools or ())

    def _narrowed(self, mode: Mode) -> Mode:
        """Permission mode `plan` makes every prompt one that changes nothing."""
        changes = self.policy.permission_mode == "plan" and spec_of(mode).changes
        return "plan_mode" if changes else mode

    def _running_calls(self) -> list[str]:
        return [item.order.call_id for item in self._background.all() if item.status == "running"]

    def _past(self) -> Iterator[Envelope]:
        return read_log(self._log.path) if self._log.path.exists() else iter(())

    async def _set_model(self, ref: str) -> str:
        self.redact.know(stored(self._env))
        model = await self._models.choose(ref)
        self._choice = Choice(chosen=True)
        return model

    def _set_permission_mode(self, mode: str) -> str:
        self.policy = self.policy.with_permission_mode(mode)
        return self.policy.permission_mode

    async def _close(self) -> None:
        if self._titler is not None:
            self._titler.cancel()
            await asyncio.wait([self._titler])
        await self._surroundings.close()
        await self._finder.close()
        await self._runner.close()
        await self.checkpoints.close()
        await self._web.close()
        await self._models.close()


class _Workplace:
    """The collaborators of one agent: its own tools, gate and file cache."""

    def __init__(self, house: _Composition, agent: str, *more: Tool[Any]) -> None:
        self._house = house
        self.files = house.new_cache(agent)
        desk = Desk(house.recorder, house.hooks)
        self.hooks = TurnHooks(desk, house.watchers, agent, source=house.source)
        self.registry = house.registry(agent, self.files, desk, *more)
        self._compaction = house.keepers.keeper(agent, desk, self.files)
        self._mark = 0
        self._fresh: list[CachedFile] = []
        self._gate = Gate(
            desk=desk,
            registry=self.registry,
            policy=lambda: house.policy,
            asker=house.asker,
            recorder=house.recorder,
            rules=house.rules,
            preview=preview,
            sandbox=house.sandbox.describe,
            seen_files=self._seen,
            before=(KeepsSecrets(house.redact.placeholders), *house.before),
            around=house.checkpoints.around,
            files=self.files,
            restore=house.checkpoints.restore,
            speculate=house.speculates,
            save=house.save_output,
            redact=house.redact,
        )

    def restore(self, files: Iterable[CachedFile]) -> None:
        """Take over what an earlier run of the session had read. The model has been told of it."""
        self.files.restore(files)
        self._mark = self.files.mark()

    def forget(self) -> None:
        """What was read is not what is there any more, or not in the conversation any more."""
        for file in self.files.listing():
            self.files.forget(file.path)
        self._mark = self.files.mark()
        self._fresh.clear()

    def kit(self, mode: Mode) -> Kit:
        house = self._house
        return Kit(
            recorder=house.recorder,
            gate=self._gate,
            limits=house.limits,
            retry=house.retry,
            planner=lambda: house.planner(mode, self.registry),
            fresh_files=self._take_fresh,
            hooks=self.hooks,
            budget=house.budget,
            compaction=self._compaction,
            other_model=house.fallback.next,
        )

    def _seen(self) -> Sequence[CachedFile]:
        seen = self.files.changed_since(self._mark)
        self._mark = self.files.mark()
        self._fresh.extend(seen)
        return seen

    def attached(self) -> Sequence[CachedFile]:
        """The files that a prompt brought along. The model is not told of them: it has them before its eyes."""
        seen = self.files.changed_since(self._mark)
        self._mark = self.files.mark()
        return seen

    def _take_fresh(self) -> list[CachedFile]:
        fresh, self._fresh = self._fresh, []
        return fresh


def standard_registry(cwd: str = "") -> Registry:
    """The standard tools by themselves, for programs that bring their own loop."""
    root = cwd or str(Path.cwd())
    folder = Path(root, ".odin")
    runner = ProcessRunner(folder / "outputs")
    background = Background(runner, folder / "spawn-logs")
    return Registry(standard_tools(Services(FileCache(), runner, folder=folder, root=root, background=background)))
