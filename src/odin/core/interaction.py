"""An interaction: anything that Odin asks of a user, in one form for every front end.

The log keeps what was asked and answered as events with the facts of each kind (`PermissionAsked`, `QuestionsAsked`,
`PlanAsked` and their answers). Everything else about an interaction follows from these facts and is made here and only
here: how it is told, the choices, the form, who may answer, and the event that records an answer. A front end shows an
`Interaction` and submits one op, `Answer`, with its id. Trust in a folder is asked before there is a session and has
no events. Texts are as they came: a front end escapes what its screen must not show.
"""

import re
from collections.abc import Iterator, Sequence
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
from odin.core.effects import EffectSummary
from odin.core.errors import UsageError
from odin.core.event_values import AnswerType, Option, Question
from odin.core.format import pluralize
from odin.core.lazy_pattern import compile_lazily
from odin.core.op import Answer, AnswerPermission, AnswerPlan, AnswerQuestions
from odin.core.policy import Danger, RememberScope
from odin.core.text import join_some, list_choices
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
    the form that go with it, `asks` is the one that is filled in before it is given. `rare`: shown on request.
    """

    key: str
    label: str
    short: str = ""
    about: str = ""
    scope: RememberScope | None = None
    permission_mode: str = ""
    role: str = ""
    fields: tuple[str, ...] = ()
    asks: str = ""
    rare: bool = False


class Detail(Struct, frozen=True, omit_defaults=True):
    """A part of the request. Odin writes `text`; the other kinds are foreign text, shown apart and in full."""

    kind: Literal["text", "quote", "diff", "markdown"]
    text: str
    heading: str = ""


class FormField(Struct, frozen=True, omit_defaults=True):
    """What can be filled in. `name` is the field of `Answer`; those named `answers` are answered in their order.

    `value` is its content before the user changes it. A field with `options` also takes own words unless its type is
    `choice`; `multiple` of them can be chosen. The limits are for a number, the length of a text, or how many options
    are chosen.
    """

    name: Literal["text", "args", "rule", "plan", "answers"]
    label: str
    text: str = ""
    value: Any = None
    options: tuple[Option, ...] = ()
    multiple: bool = False
    type: AnswerType = "text"
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None

    def find_problem(self, words: Sequence[str]) -> str:
        """Return an error message for an invalid answer, else "". An empty answer chooses the first option."""
        labels = [option.label for option in self.options]
        if not words:
            return "Enter a value." if self.required and not labels else ""
        if self.type == "choice" and not set(words).issubset(labels):
            return "Choose one of the options."
        if self.multiple:
            return self._check_limits(len(set(words)), "Choose", "option")
        if words[0] in labels:
            return ""
        text = words[0].strip()
        if not text:
            return "Enter a value." if self.required else ""
        if self.type in _FORMS and not has_form(text, self.type):
            return f"Enter {_FORMS[self.type][1]}."
        if self.type in ("integer", "number"):
            return self._check_limits(float(text), "Enter", "")
        return self._check_limits(len(text), "Enter", "character")

    def _check_limits(self, number: float, verb: str, unit: str) -> str:
        limit, word = self.minimum, "at least"
        if limit is None or number >= limit:
            limit, word = self.maximum, "at most"
            if limit is None or number <= limit:
                return ""
        return f"{verb} {word} {pluralize(int(limit), unit) if unit else f'{limit:g}'}."


_DATE = r"\d{4}-\d\d-\d\d"
_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "integer": (compile_lazily(r"[+-]?\d{1,300}", re.ASCII), "a whole number"),
    "number": (compile_lazily(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE), "a number"),
    "email": (compile_lazily(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)*"), "an e-mail address"),
    "date": (compile_lazily(_DATE, re.ASCII), "a date like 2026-12-31"),
    "date-time": (
        compile_lazily(rf"{_DATE}T\d\d:\d\d:\d\d(\.\d{{1,6}})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE),
        "a date and time like 2026-12-31T18:00:00Z",
    ),
    "uri": (compile_lazily(r"[a-z][a-z0-9+.-]*:\S+", re.ASCII | re.IGNORECASE), "an address like https://example.org"),
}
"""How what is typed must look for each type of answer, and what an error message calls it."""


def has_form(text: str, kind: str) -> bool:
    """True if a text is what a question of this type asks for."""
    if not _FORMS[kind][0].fullmatch(text):
        return False
    if kind == "number":
        return abs(float(text)) != float("inf")
    if kind in ("date", "date-time"):
        from datetime import datetime

        try:
            datetime.fromisoformat(text.upper())
        except ValueError:
            return False
    return True


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
    """A request to the user. `title` sums it up, `reason` says why; `task` is what the sub-agent `agent` works on.

    `target` is the command, URL or paths, "" if the title names it; `details` show it, and the change or the plan.
    `danger` grades what would happen, `effect` says it as far as the title does not, `warnings` what to know before
    allowing it, `sandbox` where a command would run. `facts` are what all this is made of.
    `default` is the choice that applies if nobody answers. `may_answer`: `user` is somebody at a client, also a program
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
    details: tuple[Detail, ...] = ()
    danger: Danger | None = None
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


def make_answer_field(question: Question) -> FormField:
    header, text, *rest = msgspec.structs.astuple(question)
    return FormField("answers", header, text, None, *rest)


def _ask_questions(asked: QuestionsAsked, agent: str) -> Interaction:
    return Interaction(
        id=asked.ask_id,
        kind="elicitation" if asked.server else "questions",
        title="; ".join(one.header or one.text for one in asked.questions),
        reason=f"The MCP server {asked.server} asks the user." if asked.server else "The model asks the user.",
        facts=asked,
        choices=(Choice("answer", "Answer", fields=("answers",), asks="answers"), Choice("cancel", "Cancel")),
        default="cancel",
        form=tuple(map(make_answer_field, asked.questions)),
        call_id=asked.call_id,
        agent=agent,
    )


def _present_plan(asked: PlanAsked, agent: str) -> Interaction:
    fields = ("text", "plan")
    choices = [Choice("approve", "Approve, and carry it out here in edit mode", "Approve", fields=fields)]
    for mode in asked.permission_modes:
        label = "Approve and accept edits in the project this session"
        choices.append(Choice("approve_edits", label, "Accept edits", fields=fields, permission_mode=mode))
    for number, role in enumerate(asked.roles or ("",)):
        named = f" as {role}" if len(asked.roles) > 1 else ""
        key = f"approve_new_session:{role}" if number else "approve_new_session"
        label = f"Approve, and carry it out in a new session{named}"
        choices.append(Choice(key, label, f"New session{named}", role=role, fields=fields))
    return Interaction(
        id=asked.ask_id,
        kind="plan",
        title=asked.title,
        reason="The model presents a plan.",
        facts=asked,
        choices=(
            *choices,
            Choice("revise", "Ask for changes", "Ask for changes", fields=("text",), asks="text"),
            Choice("keep_planning", "Keep planning", "Keep planning"),
        ),
        default="keep_planning",
        details=(Detail("markdown", asked.text.strip()),),
        form=(
            FormField("text", "What should change?", "Say what to change, or go back."),
            FormField("plan", "Plan", value=asked.text),
        ),
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
    is_lasting = bool(asked.rules) and not asked.unsandboxed
    target = asked.subject or msgspec.json.encode(asked.args).decode()
    if asked.effects is not None:
        title = "Keep what this command changed?"
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
            *((FormField("rule", "Rule", options=tuple(map(Option, asked.rules))),) if is_lasting else ()),
        ),
        call_id=asked.call_id,
        agent=agent,
        task=asked.task,
        target="" if named else target,
        details=(
            *_list_targets(asked, "" if named else target),
            *((Detail("text", _sum_up_effects(asked, asked.effects)),) if asked.effects is not None else ()),
            *((Detail("diff", asked.preview),) if asked.preview else ()),
            *(_list_effects(asked, asked.effects) if asked.effects is not None else ()),
        ),
        danger=asked.danger if asked.effect else None,
        effect=effect,
        warnings=(*((asked.reason,) if asked.reason and not is_told else ()), *_list_homoglyph_warnings(target)),
        sandbox=_describe_sandbox(asked),
        may_answer="user" if asked.unsandboxed else "anyone",
    )


def _list_permission_choices(asked: PermissionAsked) -> tuple[Choice, ...]:
    deny = Choice("deny", "Deny", "No", fields=("text",))
    stop = Choice("stop", "Deny and stop the work", "Stop", rare=True)
    if asked.effects is not None:
        return _list_effects_choices(asked)
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
    rule = ("rule",)
    return (
        once,
        Choice("allow_session", "For this session", "Session", scope="session", fields=rule, asks="rule"),
        *modes,
        deny,
        Choice("allow_project", "In this project", "Project", scope="project", fields=rule, asks="rule", rare=True),
        Choice("allow_everywhere", "Everywhere", "User", scope="user", fields=rule, asks="rule", rare=True),
        Choice("deny_always", "Deny always", "Never", scope="project", fields=("text", *rule), asks="rule", rare=True),
        stop,
    )


def _list_effects_choices(asked: PermissionAsked) -> tuple[Choice, ...]:
    """Return the choices about what a command wrote: allowing is to keep it."""
    rule = ("rule",)
    lasting = (
        Choice("allow_session", "Always keep", "Always", "for this command", scope="session", fields=rule, asks="rule"),
        Choice(
            "allow_project", "Always in this project", "Project", scope="project", fields=rule, asks="rule", rare=True
        ),
        Choice("allow_everywhere", "Always, everywhere", "User", scope="user", fields=rule, asks="rule", rare=True),
    )
    modes = (
        Choice("allow_mode", *_MODE_CHOICES[mode], permission_mode=mode, rare=True)
        for mode in asked.permission_modes[:1]
        if mode in _MODE_CHOICES
    )
    return (
        Choice("allow_once", "Keep", "Keep", fields=("args",)),
        *(lasting[:1] if asked.rules else ()),
        Choice("deny", "Discard", "Discard", fields=("text",)),
        *(lasting[1:] if asked.rules else ()),
        *modes,
        Choice("stop", "Discard and stop the work", "Stop", rare=True),
    )


_EFFECT_VERBS = {"attributes": "changed"}
_EFFECT_HEADINGS: tuple[str, ...] = ("created", "changed", "touched", "linked", "deleted", "moved")


def _sum_up_effects(asked: PermissionAsked, effects: EffectSummary) -> str:
    """Return `3 files: 2 created, 1 changed; node_modules: 12,403 files, 88 MB; commit 1a2b3c4 on main: …`."""
    counts = dict.fromkeys(_EFFECT_HEADINGS, 0)
    for effect in effects.files:
        counts[_EFFECT_VERBS.get(effect.kind, effect.kind)] += 1
    words = [f"{number:,} {verb}" for verb, number in counts.items() if number]
    total = pluralize(len(effects.files), "file")
    files = (
        f"{total}: {', '.join(words)}" if len(words) > 1 else f"{total} {words[0].partition(' ')[2]}" if words else ""
    )
    parts = [files, f"{effects.more:,} more" if effects.more else ""]
    parts += [f"{folder.path}: {folder.describe()}" for folder in effects.folders[:3]]
    parts += [pluralize(len(effects.git), "change") + " in .git" if effects.git else "", *asked.git_changes[:1]]
    return f"{'; '.join(filter(None, parts))}."


def _list_effects(asked: PermissionAsked, effects: EffectSummary) -> Iterator[Detail]:
    """Yield what the diff does not show: the files by what happened to them, folders, the repository, and caches."""
    names: dict[str, list[str]] = {verb: [] for verb in _EFFECT_HEADINGS}
    for effect in effects.files:
        about = ""
        if effect.kind == "moved":
            about = f" (was {effect.source})"
        elif effect.kind in ("attributes", "changed") and effect.mode != effect.mode_before:
            about = f" (mode {effect.mode_before:o} → {effect.mode:o})"
        elif effect.kind == "attributes":
            about = " (attributes)"
        elif "link" in (effect.after, effect.before):
            about = " (link)"
        elif effect.kind == "created" and effect.after == "file" and effect.mode & 0o6000:
            about = f" (mode {effect.mode:o})"
        # The diff shows it. No line of a file looks like the two lines of a header.
        if effect.kind == "changed" and not about and f"\n+++ {effect.path}\n@@ " in asked.preview:
            continue
        names[_EFFECT_VERBS.get(effect.kind, effect.kind)].append(
            f"{effect.path}{'/' if effect.is_folder else ''}{about}"
        )
    for verb, found in names.items():
        if found:
            yield Detail("quote", "\n".join(found), f"{verb.capitalize()}:")
    folders = [f"{folder.path}: {folder.describe()}" for folder in effects.folders]
    for heading, lines in (("Folders:", folders), ("Git:", asked.git_changes or [one.path for one in effects.git])):
        if lines:
            yield Detail("quote", "\n".join(lines), heading)
    if effects.caches:
        yield Detail("text", f"Caches are kept: {join_some((cache.path for cache in effects.caches), 5)}.")


def _list_targets(asked: PermissionAsked, target: str) -> list[Detail]:
    """Return the command, URL or paths. Paths that need an answer come apart from those already allowed."""
    paths = (*asked.asked_paths, *asked.allowed_paths)
    if len(paths) < 2:
        return [Detail("quote", target)] if target else []
    found = [Detail("quote", target)] if target and sorted(paths) != sorted(target.split(", ")) else []
    if asked.asked_paths:
        heading = "Needs your answer:" if found or asked.allowed_paths else ""
        found.append(Detail("quote", "\n".join(asked.asked_paths), heading))
    if asked.allowed_paths:
        found.append(Detail("quote", "\n".join(asked.allowed_paths), "Allowed already:"))
    return found


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


MAX_TRUST_LINES = 200
"""Maximum lines of a list. A longer one cannot be trusted where only its start is shown."""


def ask_for_trust(request: TrustRequest) -> Interaction:
    is_too_long = max(len(request.starts), len(request.allows)) > MAX_TRUST_LINES
    network = Choice("network", "Trust, with network for its servers", "With network")
    yes = (Choice("yes", "Trust this folder", "Trust"), *((network,) if request.servers else ()))
    return Interaction(
        id="trust",
        kind="trust",
        title="This folder has its own settings. They apply only if you trust it:",
        facts=request,
        choices=(Choice("no", "Ignore them", "Ignore"), *(() if is_too_long else yes)),
        default="no",
        target=request.folder,
        details=tuple(_list_trust_details(request)),
        effect="Too much to show here: `odin trust` lists everything." if is_too_long else "",
        may_answer="user",
    )


def _list_trust_details(request: TrustRequest) -> Iterator[Detail]:
    """Yield one detail for each setting. A line break in one must not look like the next."""
    yield Detail("text", request.folder)
    if request.changed:
        yield Detail("text", f"changed since you trusted it: {', '.join(request.changed)}")
    for items, heading, after in (
        (request.starts, "these programs would start:", "hooks and servers of this project run in the sandbox."),
        (request.allows, "this would be allowed or set:", ""),
    ):
        for number, item in enumerate(items[:MAX_TRUST_LINES]):
            yield Detail("quote", item.replace("\n", "\\n"), "" if number else heading)
        if len(items) > MAX_TRUST_LINES:
            yield Detail("text", f"… and {len(items) - MAX_TRUST_LINES} more")
        if items and after:
            yield Detail("text", after)
    if not request.starts and not request.allows:
        yield Detail("text", "nothing here needs trust.")


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
        return QuestionsAnswered(ask_id, call_id, answer.answers, answer.choice == "cancel", answer.by, answer.client)
    if isinstance(asked, PlanAsked):
        key, role, by = answer.plan_decision, answer.role, answer.by
        return PlanAnswered(ask_id, call_id, key, answer.text, role, answer.plan, by, answer.client)
    allow, text, summary, rule = answer.allow, answer.text, answer.summary, answer.rule
    return PermissionAnswered(
        ask_id, call_id, allow, answer.by, text, answer.args, summary, rule, answer.scope, answer.client
    )
