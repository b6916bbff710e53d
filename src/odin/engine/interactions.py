"""Interactions: what the session asks of its users, and who is there to answer. The first answer to an id wins.

Each agent asks one thing at a time and waits for no other agent, so that several may be pending. Each gets exactly one
answer in the log, from the user, a hook or program, a rule added meanwhile (`rule`), a steering prompt (`steer`), the
clock (`timeout`), an interrupt of the turn (`interrupt`), the end of the session (`shutdown`), or because nobody is
left to ask (`nobody`).
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from odin.core.call_events import AskEvent, PermissionAsked, PlanAsked, QuestionsAsked
from odin.core.errors import AgentShutdown, NeedsConfirmation, UsageError
from odin.core.event import Warned
from odin.core.event_values import Question
from odin.core.interaction import Interaction, make_interaction, record_answer
from odin.core.op import Answer
from odin.core.policy import HookCall, Hooks, NoHooks, RuleAction
from odin.core.text import list_choices
from odin.core.tool import PlanProposal
from odin.engine.recorder import Recorder

HandleAnswer = Callable[[Answer], Awaitable[Answer]]
"""Processes an answer before it is recorded. Returns the answer to record."""

Recheck = Callable[[], RuleAction]
"""Returns what the rules decide now about a call that is being asked about."""

NO_CLIENT = "No user can be asked here."
_INTERRUPTED = "The turn was interrupted."
_CLOSE_ROUNDS = 1000
"""How many times `close` yields to the event loop, so that waiting tasks can record their answers."""


async def _keep_answer(answer: Answer) -> Answer:
    return answer


class AttachedClient:
    """A client of the session. `answers`: it may answer interactions."""

    def __init__(self, clients: "list[AttachedClient]", left: Callable[[str], None], *, answers: bool) -> None:
        self.answers = answers
        self._clients = clients
        self._left = left
        clients.append(self)

    def set_answering(self, answers: bool, reason: str = "") -> None:
        """Say whether it answers from now on; `reason` tells the model why not."""
        self.answers = answers
        self._left(reason)

    def detach(self) -> None:
        self._clients.remove(self)
        self._left("")


class _Pending(Struct):
    interaction: Interaction
    answered: asyncio.Future[Answer]
    recheck: Recheck | None
    has_own_turn: bool = False
    is_settled: bool = False

    def answer(self, answer: Answer) -> bool:
        if self.answered.done():
            return False
        self.answered.set_result(answer)
        return True

    def make_default(self, why: str, by: str) -> Answer:
        """Return the answer that stands if nobody gives one. Only a permission request has a reason."""
        text = why if self.interaction.kind == "permission" else ""
        return Answer(self.interaction.id, self.interaction.default, text, by=by)


class Interactions:
    """The pending interactions of a session, and its clients.

    `question_timeout` and `confirm_timeout` are the seconds until questions or a plan and a permission request time
    out; 0 means never. `waits`: what is pending when the last client that answers leaves waits for another one.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        question_timeout: float = 0,
        confirm_timeout: float = 0,
        waits: bool = True,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_closed = False
        self._question_timeout = question_timeout
        self._confirm_timeout = confirm_timeout
        self._waits = waits
        self._recorder = recorder
        self._hooks = hooks or NoHooks()
        self._clock = clock
        self._clients: list[AttachedClient] = []
        self._pending: dict[str, _Pending] = {}
        self._turns = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._hook_tasks: set[asyncio.Task[None]] = set()
        self._asking = 0
        self._count = 0
        # For each agent, the seconds it has waited for answers, how many it waits for now, and since when.
        self._waits_of: dict[str, tuple[float, int, float]] = {}

    # --- clients ---

    def attach(self, *, answers: bool) -> AttachedClient:
        return AttachedClient(self._clients, self._check_clients, answers=answers)

    @property
    def can_ask(self) -> bool:
        """True if a client that may answer is attached."""
        return any(client.answers for client in self._clients)

    def _check_clients(self, reason: str) -> None:
        if not self.can_ask and not self._waits:
            for pending in self._pending.values():
                pending.answer(pending.make_default(reason or "The client that could answer has left.", "nobody"))

    # --- asking ---

    async def ask(
        self,
        asked: AskEvent,
        agent: str,
        *,
        recheck: Recheck | None = None,
        handle_answer: HandleAnswer = _keep_answer,
        turn: str = "",
    ) -> Answer | None:
        """Return the answer, or None if rules decide by now: check the call again.

        An answer by `timeout` or `shutdown` is none of a user. With a `turn` of its own it is asked at once, also while
        the agent asks something else, and no steering prompt overtakes it.
        """
        self._asking += 1
        try:
            async with self._turns[turn or agent]:
                if self.is_closed:
                    return Answer("", "deny", str(AgentShutdown()), by="shutdown")
                if recheck is not None and recheck() != "ask":
                    return None
                return await self._ask_now(asked, agent, recheck, handle_answer, bool(turn))
        finally:
            self._asking -= 1

    async def _ask_now(
        self, asked: AskEvent, agent: str, recheck: Recheck | None, handle_answer: HandleAnswer, has_own_turn: bool
    ) -> Answer | None:
        self._count += 1
        asked = msgspec.structs.replace(asked, ask_id=f"ask-{self._recorder.state.seq + 1}-{self._count}")
        if isinstance(asked, PermissionAsked):
            records = self._recorder.state.sub_agents.records if agent else ()
            task = next((record.description for record in records if record.id == agent), "")
            asked = msgspec.structs.replace(asked, task=task)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        pending = _Pending(make_interaction(asked, agent), answered, recheck, has_own_turn)
        try:
            with self._stop_clock(agent):
                answer = await self._wait_for_answer(pending, asked)
            answer = await handle_answer(_complete_answer(asked, answer))
        except asyncio.CancelledError:
            by, why = ("shutdown", str(AgentShutdown())) if self.is_closed else ("interrupt", _INTERRUPTED)
            self._recorder.emit(record_answer(asked, pending.make_default(why, by)), agent)
            raise
        self._recorder.emit(record_answer(asked, answer), agent)
        self.settle_decided()
        return None if pending.is_settled else answer

    async def _wait_for_answer(self, pending: _Pending, asked: AskEvent) -> Answer:
        interaction, limit = pending.interaction, self._question_timeout
        agent, call_id = interaction.agent, interaction.call_id
        hook = HookCall("on_wait_question", agent, call_id=call_id, text=interaction.title)
        if isinstance(asked, PermissionAsked):
            limit = self._confirm_timeout
            name, args, reason = asked.name, asked.args, asked.reason
            hook = HookCall("PermissionRequest", agent, call_id=call_id, tool=name, args=args, text=reason)
        elif isinstance(asked, QuestionsAsked):
            hook = msgspec.structs.replace(hook, text=asked.questions[0].text)
        self._pending[interaction.id] = pending
        try:
            self._recorder.emit(asked, agent)
            # Hooks run in the background while the user is asked.
            if self._hooks.has_hook_for(hook.point):
                task = asyncio.create_task(self._fire_hook(hook, pending))
                self._hook_tasks.add(task)
                task.add_done_callback(self._hook_tasks.discard)
            async with asyncio.timeout(limit or None):
                return await pending.answered
        except TimeoutError:
            return pending.make_default(f"The user did not answer within {limit:g} s.", "timeout")
        finally:
            del self._pending[interaction.id]

    async def _fire_hook(self, call: HookCall, pending: _Pending) -> None:
        effect = await self._hooks.fire(call)
        can_answer = pending.interaction.kind == "permission" and pending.interaction.may_answer == "anyone"
        if can_answer and effect.decision in ("allow", "deny"):
            choice = "allow_once" if effect.decision == "allow" else "deny"
            pending.answer(Answer(pending.interaction.id, choice, effect.message, effect.args, by="hook"))
        if effect.notice:
            self._recorder.emit(Warned(effect.notice), call.agent)

    async def ask_questions(
        self, call_id: str, questions: tuple[Question, ...], agent: str, server: str = "", turn: str = ""
    ) -> tuple[tuple[str, ...], ...] | None:
        """Return one answer per question, or None if the user cancelled.

        Raise TimeoutError if no answer came, and NeedsConfirmation if nobody can be asked.
        """
        answer = await self._ask_user(QuestionsAsked("", call_id, questions, server), agent, turn)
        return None if answer.choice == "cancel" else answer.answers

    async def ask_plan(self, call_id: str, plan: PlanProposal, agent: str) -> Answer:
        """Return the decision about a plan. Raise TimeoutError and NeedsConfirmation as `ask_questions` does.

        If it is approved without a role, it gets the first one offered.
        """
        return await self._ask_user(PlanAsked("", call_id, *msgspec.structs.astuple(plan)), agent)

    async def _ask_user(self, asked: AskEvent, agent: str, turn: str = "") -> Answer:
        if not self.can_ask and not self.is_closed:
            raise NeedsConfirmation(NO_CLIENT)
        answer = await self.ask(asked, agent, turn=turn)
        assert answer is not None
        if answer.by == "shutdown":
            raise AgentShutdown
        if answer.by == "timeout":
            raise TimeoutError
        if answer.by == "nobody":
            raise NeedsConfirmation(NO_CLIENT)
        return answer

    # --- answering ---

    def get(self, id: str) -> Interaction | None:
        """Return a pending interaction."""
        pending = self._pending.get(id)
        return None if pending is None else pending.interaction

    def answer(self, op: Answer) -> bool:
        """Give an answer. Return False if it is not pending; raise UsageError for a choice or role not offered."""
        pending = self._pending.get(op.id)
        if pending is None:
            return False
        facts, choice = pending.interaction.facts, pending.interaction.find_choice(op.choice)
        if isinstance(facts, PlanAsked) and op.role and op.role not in facts.roles:
            raise UsageError(f"The role {op.role!r} cannot carry out this plan.", f"Use {list_choices(facts.roles)}.")
        if isinstance(facts, PermissionAsked) and choice.scope is not None:
            rule = op.rule or next(iter(facts.rules), "")
            op = msgspec.structs.replace(op, rule=rule, scope=op.scope or choice.scope)
        mode, role = op.permission_mode or choice.permission_mode, op.role or choice.role
        stops = op.interrupt or op.choice == "stop"
        return pending.answer(msgspec.structs.replace(op, permission_mode=mode, role=role, interrupt=stops))

    def settle_decided(self) -> None:
        """Settle the permission requests that rules decide by now. Called when rules or modes may have changed."""
        for pending in list(self._pending.values()):
            action = "ask" if pending.recheck is None else pending.recheck()
            if action != "ask":
                choice = "allow_once" if action == "allow" else "deny"
                pending.is_settled = pending.answer(Answer(pending.interaction.id, choice, by="rule"))

    def cancel_for_agent(self, agent: str) -> None:
        """Answer no to the permission requests of an agent, because a steering prompt overtook them."""
        for pending in self._pending.values():
            is_overtaken = pending.interaction.agent == agent and not pending.has_own_turn
            if is_overtaken and pending.interaction.kind == "permission":
                pending.answer(pending.make_default("You sent a steering prompt instead.", "steer"))

    async def close(self) -> None:
        """Give what is pending its default answer and ask nothing more. On return, waiting tasks have their answers."""
        self.is_closed = True
        for pending in self._pending.values():
            pending.answer(pending.make_default(str(AgentShutdown()), "shutdown"))
        for _ in range(_CLOSE_ROUNDS):
            if not self._asking:
                break
            await asyncio.sleep(0)
        for task in self._hook_tasks:
            task.cancel()
        await asyncio.gather(*self._hook_tasks, return_exceptions=True)

    # --- the time that users take ---

    def measure_work(self, agent: str) -> float:
        """Return the time on a clock that stands while this agent waits for answers."""
        waited, count, since = self._waits_of.get(agent, (0.0, 0, 0.0))
        return (since if count else self._clock()) - waited

    @contextmanager
    def _stop_clock(self, agent: str) -> Generator[None]:
        """Stop the clocks of an agent and of those that wait for it: AgentTool's sub-agent keeps its owner waiting."""
        records = {record.id: record for record in self._recorder.state.sub_agents.records}
        agents = [agent]
        while (record := records.get(agents[-1])) is not None and not record.task_id:
            agents.append(record.owner)
        for name in agents:
            waited, count, since = self._waits_of.get(name, (0.0, 0, 0.0))
            self._waits_of[name] = waited, count + 1, since if count else self._clock()
        try:
            yield
        finally:
            for name in agents:
                waited, count, since = self._waits_of[name]
                done = waited + self._clock() - since if count == 1 else waited
                self._waits_of[name] = done, count - 1, since


def _complete_answer(asked: AskEvent, answer: Answer) -> Answer:
    """Return the answer with what it leaves out, and without what it leaves as it was."""
    if isinstance(asked, QuestionsAsked):
        given = () if answer.choice == "cancel" else _complete_answers(asked.questions, answer.answers)
        return msgspec.structs.replace(answer, answers=given)
    if isinstance(asked, PlanAsked):
        is_approved = answer.plan_decision in ("approve", "approve_new_session")
        role = (answer.role or next(iter(asked.roles), "")) if is_approved else ""
        return msgspec.structs.replace(answer, role=role, plan=answer.plan if answer.plan != asked.text else "")
    return msgspec.structs.replace(answer, args=answer.args if answer.args != asked.args else None)


def _complete_answers(questions: Sequence[Question], given: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return an answer to every question: the first option if none was given, one option for single choice."""
    answers: list[tuple[str, ...]] = []
    for number, question in enumerate(questions):
        words = tuple(word for word in given[number] if word.strip()) if number < len(given) else ()
        default = tuple(option.label for option in question.options[:1])
        answers.append((words if question.multiple else words[:1]) or default)
    return tuple(answers)
