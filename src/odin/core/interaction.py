"""An interaction: anything that Odin asks of a user, in one form for every front end.

The log keeps what was asked and answered as events with the facts of each kind (`PermissionAsked`, `QuestionsAsked`,
`PlanAsked` and their answers). Everything else about an interaction follows from these facts and is made here and only
here: how it is told, the choices, the form, who may answer, and the event that records an answer. A front end shows an
`Interaction` and submits one op, `Answer`, with its id. Trust in a folder is asked before there is a session and has
no events. Texts are as they came: a front end escapes what its screen must not show.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from odin.core.call_events import (
    AnswerEvent,
    AskEvent,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
)
from odin.core.errors import UsageError
from odin.core.event_values import Option, Question
from odin.core.op import Answer, AnswerPermission, AnswerPlan, AnswerQuestions
from odin.core.policy import RememberScope
from odin.core.text import list_choices
from odin.core.tool import get_display_name

InteractionKind = Literal["permission", "questions", "plan", "trust", "elicitation"]

MAX_TITLE = 150
"""A longer title is cut, and the request shows the whole path below it."""

_OUTSIDE = ", outside the project."
"""The end of a sentence about paths; the danger level says the same."""

_MODE_CHOICES = {
    "acceptEdits": ("All edits this session", "All edits", "all edits in the project this session"),
    "auto": (
        "All sandboxed commands",
        "Sandboxed",
        "all sandboxed commands and edits in the project this session",
    ),
}


class Choice(Struct, frozen=True, omit_defaults=True):
    """One way to answer. `short` is its label where there is little room, `about` says more.

    `scope`, `permission_mode` and `role` are what it stands for; an answer may name others. `fields` are the fields of
    the form that go with it.
    """

    key: str
    label: str
    short: str = ""
    about: str = ""
    scope: RememberScope | None = None
    permission_mode: str = ""
    role: str = ""
    fields: tuple[str, ...] = ()


class FormField(Struct, frozen=True, omit_defaults=True):
    """What can be filled in. `name` is the field of `Answer`; those named `answers` are answered in their order.

    `value` is its content before the user changes it. A field with `options` also takes own words; `multiple` of them
    can be chosen.
    """

    name: Literal["text", "args", "rule", "plan", "answers"]
    label: str
    text: str = ""
    value: Any = None
    options: tuple[Option, ...] = ()
    multiple: bool = False


class TrustRequest(Struct, frozen=True, tag=True):
    """Settings that take effect only if the folder is trusted: programs it starts, calls it allows, values it sets.

    `changed` names the files that changed since the folder was last trusted. `servers` are the programs among what it
    starts that the user can let use the network.
    """

    folder: str
    changed: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


class Interaction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked. `title` says it in a few words, `reason` why; `task` is what the sub-agent `agent` works on.

    `target` is the command, URL or paths, "" if the title names it. `effect` says what would happen as far as the title
    does not, `warnings` what to know before allowing it, `sandbox` where a command would run. The rest is in `facts`.
    `default` is the choice that stands if nobody answers. `may_answer`: `user` is somebody at a client, also a program
    that stands for the user; hooks and replays cannot answer it.
    """

    id: str
    kind: InteractionKind
    title: str
    facts: PermissionAsked | QuestionsAsked | PlanAsked | TrustRequest
    choices: tuple[Choice, ...]
    default: str
    form: tuple[FormField, ...] = ()
    call_id: str = ""
    agent: str = ""
    task: str = ""
    reason: str = ""
    target: str = ""
    effect: str = ""
    warnings: tuple[str, ...] = ()
    sandbox: str = ""
    may_answer: Literal["user", "anyone"] = "anyone"

    @property
    def permission(self) -> PermissionAsked:
        """The facts of a permission request."""
        assert isinstance(self.facts, PermissionAsked)
        return self.facts

    @property
    def plan(self) -> PlanAsked:
        """The facts of a plan."""
        assert isinstance(self.facts, PlanAsked)
        return self.facts

    @property
    def questions(self) -> tuple[Question, ...]:
        return self.facts.questions if isinstance(self.facts, QuestionsAsked) else ()

    def find_choice(self, key: str) -> Choice:
        """Return the choice with this key. Raise UsageError if it is not offered."""
        for choice in self.choices:
            if choice.key == key:
                return choice
        keys = list_choices(choice.key for choice in self.choices)
        raise UsageError(f"{key!r} is not an answer to this.", f"Use {keys}.")


def make_interaction(asked: AskEvent, agent: str = "") -> Interaction:
    if isinstance(asked, QuestionsAsked):
        return _ask_questions(asked, agent)
    if isinstance(asked, PlanAsked):
        return _present_plan(asked, agent)
    return _request_permission(asked, agent)


def _ask_questions(asked: QuestionsAsked, agent: str) -> Interaction:
    fields = (FormField("answers", one.header, one.text, None, one.options, one.multiple) for one in asked.questions)
    return Interaction(
        id=asked.ask_id,
        kind="elicitation" if asked.server else "questions",
        title="; ".join(one.header or one.text for one in asked.questions),
        reason=f"The MCP server {asked.server} asks the user." if asked.server else "The model asks the user.",
        facts=asked,
        choices=(Choice("answer", "Answer", fields=("answers",)), Choice("cancel", "Cancel")),
        default="cancel",
        form=tuple(fields),
        call_id=asked.call_id,
        agent=agent,
    )


def _present_plan(asked: PlanAsked, agent: str) -> Interaction:
    choices = [Choice("approve", "Approve, and carry it out here in edit mode", "Approve", fields=("text", "plan"))]
    for number, role in enumerate(asked.roles or ("",)):
        named = f" as {role}" if len(asked.roles) > 1 else ""
        key = f"approve_new_session:{role}" if number else "approve_new_session"
        label = f"Approve, and carry it out in a new session{named}"
        choices.append(Choice(key, label, f"New session{named}", role=role, fields=("text", "plan")))
    return Interaction(
        id=asked.ask_id,
        kind="plan",
        title=asked.title,
        reason="The model presents a plan.",
        facts=asked,
        choices=(
            *choices,
            Choice("revise", "Ask for changes", "Ask for changes", fields=("text",)),
            Choice("keep_planning", "Keep planning", "Keep planning"),
        ),
        default="keep_planning",
        form=(FormField("text", "What should change?"), FormField("plan", "Plan", value=asked.text)),
        call_id=asked.call_id,
        agent=agent,
    )


def _request_permission(asked: PermissionAsked, agent: str) -> Interaction:
    title, named = asked.title or get_display_name(asked.name), _is_named_by_title(asked)
    description = asked.args.get("description")
    if asked.unsandboxed:
        title = "Run this again outside the sandbox"
    elif isinstance(description, str) and description.strip() and "command" in asked.args:
        title = f"{title}: {' '.join(description.split())}"
    # The title or the danger level may say the same as the effect, and the effect the same as the reason.
    effect = asked.effect.replace(_OUTSIDE, ".") if asked.danger == "outside_project" else asked.effect
    if named and asked.danger in ("changes_files", "outside_project", "network"):
        effect = ""
    is_outside_told = asked.danger == "outside_project" or _OUTSIDE in asked.effect
    is_told = asked.reason == asked.effect or (is_outside_told and "outside the project" in asked.reason)
    target = asked.subject or msgspec.json.encode(asked.args).decode()
    return Interaction(
        id=asked.ask_id,
        kind="permission",
        title=title,
        reason=asked.reason,
        facts=asked,
        choices=_list_permission_choices(asked),
        default="deny",
        form=(
            FormField("text", "Reason for the model"),
            *(() if asked.unsandboxed else (FormField("args", "Arguments", value=asked.args),)),
            *((FormField("rule", "Rule", options=tuple(map(Option, asked.rules))),) if asked.rules else ()),
        ),
        call_id=asked.call_id,
        agent=agent,
        task=asked.task,
        target="" if named else target,
        effect=effect,
        warnings=(*((asked.reason,) if asked.reason and not is_told else ()), *_list_homoglyph_warnings(target)),
        sandbox=_describe_sandbox(asked),
        may_answer="user" if asked.unsandboxed else "anyone",
    )


def _list_permission_choices(asked: PermissionAsked) -> tuple[Choice, ...]:
    deny = Choice("deny", "Deny", "No", fields=("text",))
    stop = Choice("stop", "Deny and stop the work", "Stop")
    if asked.unsandboxed:
        return Choice("allow_once", "Run without sandbox", "Yes"), deny, stop
    modes = (
        Choice("allow_mode", *_MODE_CHOICES[mode], permission_mode=mode)
        for mode in asked.permission_modes[:1]
        if mode in _MODE_CHOICES
    )
    once = Choice("allow_once", "Allow once", "Yes", fields=("args",))
    if not asked.rules:
        return once, *modes, deny, stop
    return (
        once,
        Choice("allow_session", "For this session", "Session", scope="session", fields=("rule",)),
        *modes,
        deny,
        Choice("allow_project", "In this project", "Project", scope="project", fields=("rule",)),
        Choice("allow_everywhere", "Everywhere", "User", scope="user", fields=("rule",)),
        Choice("deny_always", "Deny always", "Never", scope="project", fields=("text", "rule")),
        stop,
    )


def _is_named_by_title(asked: PermissionAsked) -> bool:
    """True if the title ends with the file that the request is about, and is shown as a whole."""
    name = asked.title.partition(" ")[2].removeprefix("file ")
    is_named = bool(name) and (asked.subject == name or asked.subject.endswith(f"/{name}"))
    return is_named and len(asked.title) <= MAX_TITLE


def _describe_sandbox(asked: PermissionAsked) -> str:
    """Return the sandbox that the command would run in and what approval lets it do besides, as a sentence, or ""."""
    if not asked.sandbox or asked.unsandboxed:
        return ""
    grants = ["use the network"] if asked.granted_network and not asked.sandbox.endswith("network on") else []
    grants += [f"write {', '.join(asked.granted_paths)}"] if asked.granted_paths else []
    is_confined = not asked.sandbox.startswith("no sandbox")
    besides = f"; if you allow it, it may {' and '.join(grants)}" if grants and is_confined else ""
    return f"It would run in {asked.sandbox}{besides}."


def _list_homoglyph_warnings(text: str) -> Sequence[str]:
    if text.isascii():
        return ()
    from odin.core.homoglyphs import describe_homoglyphs

    found = describe_homoglyphs(text)
    return (found,) if found else ()


def ask_for_trust(request: TrustRequest) -> Interaction:
    network = Choice("network", "Trust, with network for its servers", "With network")
    return Interaction(
        id="trust",
        kind="trust",
        title="This folder has its own settings. They apply only if you trust it:",
        facts=request,
        choices=(
            Choice("no", "Ignore them", "Ignore"),
            Choice("yes", "Trust this folder", "Trust"),
            *((network,) if request.servers else ()),
        ),
        default="no",
        target=request.folder,
        may_answer="user",
    )


# --- answers ---


def read_answer(given: AnswerPermission | AnswerQuestions | AnswerPlan | AnswerEvent) -> Answer:
    """Return the answer that the op of one kind gives, or that the log has recorded."""
    match given:
        case AnswerQuestions() | QuestionsAnswered():
            return Answer(given.ask_id, "cancel" if given.cancelled else "answer", answers=given.answers, by=given.by)
        case AnswerPlan() | PlanAnswered():
            key, role, by = given.decision, given.role, given.by
            return Answer(given.ask_id, key, given.comment, plan=given.text, role=role, by=by)
        case AnswerPermission():
            choice = "allow_once" if given.allow else "deny"
        case PermissionAnswered():
            choice = "allow_once" if given.allowed else "deny"
    op = given if isinstance(given, AnswerPermission) else None
    return Answer(
        given.ask_id,
        choice,
        given.reason,
        args=given.args,
        summary=given.summary,
        rule=given.rule,
        scope=given.remember,
        permission_mode=op.permission_mode if op else "",
        interrupt=op is not None and op.interrupt,
        by=given.by,
    )


def record_answer(asked: AskEvent, answer: Answer) -> AnswerEvent:
    """Return the event that records an answer."""
    ask_id, call_id = asked.ask_id, asked.call_id
    if isinstance(asked, QuestionsAsked):
        return QuestionsAnswered(ask_id, call_id, answer.answers, answer.choice == "cancel", answer.by)
    if isinstance(asked, PlanAsked):
        key, role, by = answer.plan_decision, answer.role, answer.by
        return PlanAnswered(ask_id, call_id, key, answer.text, role, answer.plan, by)
    allow, rule, scope = answer.allow, answer.rule, answer.scope
    return PermissionAnswered(ask_id, call_id, allow, answer.by, answer.text, answer.args, answer.summary, rule, scope)
