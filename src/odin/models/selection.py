"""The model of an agent: the selected one, and the one that runs while that cannot answer.

The named model wins, then one whose key is present, then one on this machine, then the offline planner. For a resumed
session, in this order: flag or variable, choice in the session, pool chosen in the project, configuration, the model it
last had. A model that replaced another does not count as chosen.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from odin.config import Config
from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ConfigError,
    Misconfigured,
    ModelNotFound,
    OdinError,
    PackageFailed,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    TlsFailed,
    UsageError,
)
from odin.core.event import AnyEvent, EffortChanged, Envelope, ModelChanged, SessionOpened, Warned
from odin.core.event_values import DEFAULT_ROLE
from odin.core.provider import EFFORTS, ModelInfo, Provider
from odin.core.text import suggest_similar
from odin.engine.stream import NextModel, RetryPolicy
from odin.models.catalog import BUILTIN_MODEL
from odin.models.connector import ModelConnector

if TYPE_CHECKING:
    from odin.models.choices import ModelChoices

OFFLINE_NOTICE = (
    "No model is configured: the offline planner answers. "
    "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, store a key with `odin auth add`, or see `odin models`."
)

TRIES_PER_MODEL = 2
"""How often a model is asked in a row if another one can take over."""

MAX_RETRY_WAIT_S = 2.0
"""A model that asks for a longer wait is replaced at once if another one can take over."""

RETURN_AFTER_S = 60.0
"""How long a model that failed is left alone; doubled with each further failure, up to five minutes."""

MAX_RETURN_AFTER_S = 300.0

RETURN_WITHIN_TURN_S = 300.0
"""Within a turn the selected model returns later: each switch makes the new model read the conversation again."""

_FAILOVER_ERRORS = (AuthFailed, QuotaExhausted, ModelNotFound, BadReply, TlsFailed, Misconfigured, PackageFailed)


def make_retry_policy(config: Config) -> RetryPolicy:
    retry = config.retry
    return RetryPolicy(
        attempts=retry.attempts, base_s=retry.base_s, max_s=retry.max_s, grows=retry.backoff == "exponential"
    )


class PoolLimit(Struct, frozen=True):
    """The only model pools that an agent may use. `owner` is whose limit this is, `place` where it is written."""

    owner: str
    pools: tuple[str, ...]
    place: str

    def make_error(self, name: str) -> UsageError:
        pools = f"model pool{'s' if len(self.pools) > 1 else ''} {', '.join(self.pools)}"
        return UsageError(f"{self.owner} may only use the {pools}, not {name}.", f"The limit is set in {self.place}.")


class Selection(Struct, frozen=True):
    """A selected model. `candidates` are the models that may answer for it, in order, itself included."""

    ref: str
    provider: Provider
    info: ModelInfo
    pool: str = ""
    candidates: tuple[str, ...] = ()


class _Substitute(Struct, frozen=True):
    """The model that runs instead of a selection."""

    selection: Selection
    provider: Provider
    info: ModelInfo


class _ModelCooldown(Struct, frozen=True):
    """`asked_until` is what its provider asked for; `return_at` is when it is worth another try."""

    failures: int = 0
    asked_until: float = 0.0
    return_at: float = 0.0
    usable: bool = True


class ModelSelector:
    """The model of one agent. A change takes effect with the next request.

    An agent without a selection of its own follows that of its `parent`, but fails over by itself.
    """

    def __init__(
        self,
        connector: ModelConnector,
        parent: "ModelSelector | None" = None,
        *,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        choices: "ModelChoices | None" = None,
    ) -> None:
        self.connector = connector
        self.notice = ""
        self.role = DEFAULT_ROLE
        self.emit: Callable[[AnyEvent], object] = lambda event: None
        self.limit: PoolLimit | None = None
        self._parent = parent
        self._clock = clock
        self._choices = choices
        self._own: Selection | None = None
        self._effort: str | None = None
        self._adjusted: tuple[ModelInfo, str, ModelInfo] | None = None
        self._substitute: _Substitute | None = None
        self._cooldowns: dict[str, _ModelCooldown] = {}
        self._tried: set[str] = set()
        self._round = 0

    # --- which model ---

    @property
    def selection(self) -> Selection:
        if self._own is not None:
            return self._own
        assert self._parent is not None, "no model was selected"
        return self._parent.selection

    @property
    def has_selection(self) -> bool:
        return self._own is not None or (self._parent is not None and self._parent.has_selection)

    @property
    def _running(self) -> Selection | _Substitute:
        substitute = self._substitute
        return substitute if substitute is not None and substitute.selection is self.selection else self.selection

    @property
    def provider(self) -> Provider:
        return self._running.provider

    @property
    def info(self) -> ModelInfo:
        """The model that runs, with the reasoning effort in its options."""
        info, effort = self._running.info, self.effort
        if effort == info.options.effort:
            return info
        if self._adjusted is None or self._adjusted[0] is not info or self._adjusted[1] != effort:
            from odin.models.pools import apply_effort

            self._adjusted = info, effort, apply_effort(info, effort)
        return self._adjusted[2]

    @property
    def effort(self) -> str:
        """The reasoning effort: the chosen one, else that of the model's variant, else the configured one.

        Empty if it is left to the model, or if the model does not reason.
        """
        info = self._running.info
        if not info.takes_effort:
            return info.options.effort
        configured = self.connector.config.effort if info.options.thinking is None else None
        return self._chosen_effort or info.options.effort or configured or ""

    @property
    def _chosen_effort(self) -> str:
        if self._effort is not None or self._parent is None:
            return self._effort or ""
        return self._parent._chosen_effort

    @property
    def ref(self) -> str:
        """The model that runs."""
        return self._running.info.ref

    @property
    def selected(self) -> str:
        """The selected model; another one may be running."""
        return self.selection.ref

    @property
    def choice(self) -> str:
        """What to choose to get this selection again: the pool, or the model."""
        return self.selection.pool or self.selection.ref

    @property
    def is_fixed(self) -> bool:
        return self.connector.is_fixed

    def make_follower(self) -> "ModelSelector":
        """Return the selector of another agent that follows this selection."""
        return ModelSelector(self.connector, self, clock=self._clock)

    async def connect_small(self) -> tuple[Provider, ModelInfo]:
        """Return the small model."""
        return await self.connector.connect_small(self.selection.info.provider)

    # --- selecting ---

    def use(self, provider: Provider, info: ModelInfo, small: tuple[Provider, ModelInfo] | None = None) -> None:
        """Use this provider. With `small`, no other model is ever connected."""
        if small is not None:
            self.connector.fix(small)
        self._own = Selection(info.ref, provider, info, "", self._list_fallbacks(info.ref))

    async def choose(self, name: str) -> str:
        """Select a model or a pool; without a name the first model found, or the offline planner.

        Keys stored since the last call are used. Return the name of the model.
        """
        connector, self.notice = self.connector, ""
        connector.reload_keys()
        name = name or self.choose_permitted("")
        pool = self._find_own_pool(name)
        if name in connector.config.model_pools:
            self._own = await self._open_pool(name)
            return self.ref
        preconnect = bool(name) or connector.is_eager
        if not name:
            name, self.notice = await connector.find_default()
        if not name:
            self.notice = OFFLINE_NOTICE
        try:
            provider, info = await connector.connect(name or BUILTIN_MODEL.ref, preconnect=preconnect, again=True)
        except ConfigError as error:
            suggestion = "" if "/" in name else suggest_similar(name, connector.config.model_pools)
            if not suggestion:
                raise
            raise ConfigError(f"There is no model pool {name!r}.{suggestion}", error.hint) from error
        if info.variant:
            self._effort = None
        models = connector.pools.list_models(pool) if pool else ()
        if info.ref in models:
            self._own = Selection(info.ref, provider, info, pool, models)
        else:
            self._own = Selection(info.ref, provider, info, "", self._list_fallbacks(info.ref))
        return self.ref

    def _find_own_pool(self, name: str) -> str:
        """Return the pool that a model is chosen from: the selected one, or one that the agent may use.

        Raise UsageError if the agent may use neither the model nor the pool of this name.
        """
        if self.limit is None:
            return self._own.pool if self._own is not None else ""
        pool = self._find_permitted_pool(name, self.limit)
        if not pool:
            raise self.limit.make_error(name)
        return pool

    def _find_permitted_pool(self, name: str, limit: PoolLimit) -> str:
        if name in limit.pools:
            return name
        ref, pools = self.connector.normalize(name), self.connector.pools
        return next((pool for pool in limit.pools if ref in pools.list_models(pool)), "")

    def choose_permitted(self, name: str) -> str:
        """Return this model or pool if the agent may use it, else the first pool that it may use."""
        if self.limit is None or (name and self._find_permitted_pool(name, self.limit)):
            return name
        return self.limit.pools[0]

    @property
    def is_permitted(self) -> bool:
        """True if the agent may use the selection that it has, or that it follows now and later."""
        if self.limit is None or self.is_fixed:
            return True
        return self._own is not None and self._own.pool in self.limit.pools

    async def choose_usual(self, remembered: str = "") -> str:
        """Select the pool remembered for the project, the configured model or pool, the first pool, or the first model.

        An agent with a parent follows it again.
        """
        if self._parent is not None:
            if self.limit is not None:
                return await self.choose("")
            self._own = None
            return self.ref
        config = self.connector.config
        first = [remembered] if remembered in config.model_pools else []
        for name in [*first, *(() if config.model else config.model_pools)]:
            with suppress(OdinError):  # `ModelConnector.warnings` says what is wrong with it
                return await self.choose(name)
        try:
            return await self.choose(self.choose_permitted(config.model))
        except ConfigError as error:
            raise self.connector.explain_setting(error, "model", config.model) from error

    def find_named(self, name: str) -> str:
        """Return the model or pool that an agent file names; "" if the provider in use has no such model."""
        return self.connector.find_named(name, self.info.provider)

    def find_remembered_pool(self) -> str:
        return self._choices.pool if self._choices is not None else ""

    def find_pick(self, pool: str) -> str:
        """Return the usable model that was picked last in this pool, in the role of the agent; "" if there is none."""
        if self._choices is None or pool not in self.connector.config.model_pools:
            return ""
        picked = self._choices.find_pick(self.role, pool)
        return picked if picked in self.connector.pools.list_usable(pool) else ""

    def remember(self) -> None:
        """Remember the choice for the next session in this project."""
        if self._choices is not None and self.connector.config.model_pools:
            self._choices.save(self.role, self.selection.pool, self.selection.ref)

    async def _open_pool(self, name: str) -> Selection:
        """Return the selection of a pool: the model picked there last, else the first that can be connected."""
        models = self.connector.pools.list_usable(name)
        picked = self.find_pick(name)
        first = [picked] if picked else []
        failure: OdinError | None = None
        for ref in dict.fromkeys([*first, *models]):
            try:
                provider, info = await self.connector.connect(ref)
            except OdinError as error:
                failure = failure or error
                self.notice = f"{ref} cannot be used: {error.describe()}"
                continue
            self.connector.prepare(models)
            return Selection(info.ref, provider, info, name, models)
        assert failure is not None
        raise failure

    def _list_fallbacks(self, ref: str) -> tuple[str, ...]:
        if self.connector.is_fixed:
            return (ref,)
        names = map(self.connector.normalize, self.connector.config.fallback_model)
        return tuple(dict.fromkeys([ref, *names]))

    def set_effort(self, effort: str) -> EffortChanged:
        """Use a reasoning effort, from the next request on; "" for the usual one.

        A model with a variant that is chosen later ends it. Raise UsageError if the model does not reason.
        """
        if effort and effort not in EFFORTS:
            known = f"Efforts: {', '.join(EFFORTS)}."
            raise UsageError(f"Unknown effort {effort!r}.{suggest_similar(effort, EFFORTS)}", known)
        if effort and not self.selection.info.takes_effort:
            raise UsageError(f"{self.selected} does not reason, so it takes no effort.")
        self._effort = effort or None
        return EffortChanged(effort)

    # --- for the turn: ModelFailover ---

    def begin_prompt(self) -> None:
        """Return to the selected model if it is worth a try. Call when a prompt starts."""
        self._settle()
        self._restore(0.0)

    def begin_request(self) -> None:
        self._restore(RETURN_WITHIN_TURN_S)

    def limit_retries(self, usual: RetryPolicy) -> RetryPolicy:
        """Return how often one model is asked: less if another one can take over."""
        if len(self.selection.candidates) < 2:
            return usual
        attempts = min(usual.attempts or TRIES_PER_MODEL, TRIES_PER_MODEL)
        return replace(usual, attempts=attempts, max_s=min(usual.max_s, MAX_RETRY_WAIT_S))

    def record_reply(self) -> None:
        self._cooldowns.pop(self.ref, None)
        self._settle()

    async def fail_over(self, failed: str, error: ProviderError) -> NextModel | None:
        """Switch to another model than `failed`; None if none is left. All of them are asked again after a wait."""
        candidates = self.selection.candidates
        if isinstance(error, BadRequest) and self.info.variant:
            from odin.models.pools import locate_variant

            error.hint = f"The variant {self.info.variant!r} is set in {locate_variant(self.info, self.connector.env)}."
        if isinstance(error, ModelNotFound) and (suggestion := self.connector.suggest_model(self.info)):
            error.hint = f"{suggestion} {error.hint}"
        if len(candidates) < 2 or not (error.retryable or isinstance(error, _FAILOVER_ERRORS)):
            return None
        if self.ref != failed:  # the user has switched meanwhile
            return NextModel()
        now, before = self._clock(), self._cooldowns.get(failed, _ModelCooldown())
        asked = error.retry_after or 0.0
        usual = min(RETURN_AFTER_S * 2 ** min(before.failures, 5), MAX_RETURN_AFTER_S)
        self._cooldowns[failed] = _ModelCooldown(
            failures=before.failures + 1,
            asked_until=now + asked,
            return_at=now + (asked if isinstance(error, RateLimited) and asked else usual),
            usable=error.retryable or bool(asked),
        )
        self._tried.add(failed)
        reason = f"{failed} cannot answer: {error}"
        at = candidates.index(failed) + 1 if failed in candidates else 0
        for ref in (*candidates[at:], *candidates[:at]):
            if ref not in self._tried and await self._switch_to(ref, reason):
                return NextModel()
        # All models have failed: wait for the first of them that may answer again.
        retry, now = make_retry_policy(self.connector.config), self._clock()
        rounds = -(-retry.attempts // TRIES_PER_MODEL)
        cooldowns = {ref: self._cooldowns.get(ref, _ModelCooldown()) for ref in self.selection.candidates}
        waits = {ref: max(0.0, cooldown.asked_until - now) for ref, cooldown in cooldowns.items() if cooldown.usable}
        self._round += 1
        if (rounds and self._round >= rounds) or not waits or min(waits.values()) > retry.max_s:
            return None
        following = min(waits, key=lambda ref: waits[ref])
        delay = min(retry.max_s, max(waits[following], retry.compute_backoff(self._round)))
        self._tried = {ref for ref, cooldown in cooldowns.items() if not cooldown.usable}
        if following != self.ref and not await self._switch_to(following, reason):
            return None
        return NextModel(delay, self._round, rounds)

    async def _switch_to(self, ref: str, reason: str) -> bool:
        self._tried.add(ref)
        selection = self.selection
        try:
            provider, info = await self.connector.connect(ref)
        except OdinError as error:
            self._cooldowns[ref] = _ModelCooldown(usable=False)
            self.emit(Warned(f"The model {ref} cannot be used: {error.describe()}"))
            return False
        if info.ref == self.ref or selection is not self.selection:
            return selection is not self.selection
        self._substitute = None if info.ref == selection.ref else _Substitute(selection, provider, info)
        self.emit(ModelChanged(self.ref, reason, selection.ref, selection.pool))
        return True

    def _restore(self, delay_s: float) -> None:
        substitute, selected = self._substitute, self.selection.ref
        if substitute is None:
            return
        if substitute.selection is not self.selection:
            self._substitute = None
        elif self._clock() >= self._cooldowns.get(selected, _ModelCooldown()).return_at + delay_s:
            self._substitute = None
            self.emit(ModelChanged(selected, "trying the selected model again.", selected, self.selection.pool))

    def _settle(self) -> None:
        self._tried, self._round = set(), 0


# --- the model of a new session ---


_RUN_SOURCES = ("flag", "ODIN_MODEL")
"""Configuration sources that belong to this run."""


class InitialModel(Struct, frozen=True):
    """`chosen`: the user chose the model of this session. `warning`: its earlier model is no longer available."""

    chosen: bool = False
    warning: str = ""


class _EarlierModel(Struct, frozen=True):
    model: str = ""
    pool: str = ""
    chosen: bool = False


async def choose_initial_model(
    models: ModelSelector, config: Config, past: Sequence[Envelope], pool: str = ""
) -> InitialModel:
    """Connect to this run's model: the one or the pool it names, the one chosen before, or the configured one.

    If nothing is configured, a resumed session keeps its model and a new one uses the first model found. The effort of
    this run, or else the one chosen before, applies to it.
    """
    initial = await _choose_model(models, config, past, pool)
    is_named = config.sources.get("effort") in ("flag", "ODIN_EFFORT")
    try:
        models.set_effort(config.effort or "" if is_named else _find_earlier_effort(past))
    except UsageError as error:
        return replace(initial, warning=" ".join(filter(None, (initial.warning, str(error)))))
    return initial


def _find_earlier_effort(past: Sequence[Envelope]) -> str:
    for envelope in reversed(past):
        event = envelope.event
        if isinstance(event, EffortChanged) and not envelope.agent:
            return event.effort
        if isinstance(event, ModelChanged) and not (event.reason or envelope.agent) and "@" in event.model:
            return ""
    return ""


async def _choose_model(models: ModelSelector, config: Config, past: Sequence[Envelope], pool: str) -> InitialModel:
    if pool:
        models.connector.pools.list_models(pool)
        await models.choose(pool)
        if config.sources.get("model") in _RUN_SOURCES:
            await models.choose(config.model)
        return InitialModel(chosen=True)
    if config.sources.get("model") in _RUN_SOURCES:
        await models.choose(config.model)
        return InitialModel(chosen=True)
    had = _find_earlier_model(past)
    warning = ""
    if had.model and (had.chosen or not config.model):
        try:
            await _choose_again(models, had)
            return InitialModel(chosen=had.chosen)
        except OdinError as error:
            warning = f"This session was using {had.model}, which cannot be used now: {error.describe()}"
    now = await models.choose_usual(models.find_remembered_pool())
    return InitialModel(warning=f"{warning} Continuing with {now}." if had.chosen and warning else "")


async def _choose_again(models: ModelSelector, had: _EarlierModel) -> None:
    if had.pool in models.connector.config.model_pools:
        await models.choose(had.pool)
        if had.model == models.ref or had.model not in models.selection.candidates:
            return
    await models.choose(had.model)


def _find_earlier_model(past: Sequence[Envelope]) -> _EarlierModel:
    """Return the model of an earlier run, ignoring substitutes and the offline planner."""
    for envelope in reversed(past):
        event = envelope.event
        if isinstance(event, ModelChanged) and not event.reason and not envelope.agent:
            return _EarlierModel(event.model, event.pool, chosen=True)
        if isinstance(event, SessionOpened):
            stood_in = event.model == BUILTIN_MODEL.ref and not event.model_chosen
            return _EarlierModel("" if stood_in else event.model, event.pool, event.model_chosen)
    return _EarlierModel()
