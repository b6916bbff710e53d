"""What Odin asks the user, as permission requests and forms of the editor.

A permission request shows everything that an answer depends on. Reasons, edited arguments and words of one's own need a
form, which not every editor can show.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET

from odin.acp.calls import find_kind, list_diffs, list_locations, make_text, quote
from odin.acp.connection import EditorRefused
from odin.acp.protocol import CallContent, CallFields, FormRequest, PermissionOption, ToolPermissionRequest
from odin.core.interaction import FormField, Interaction
from odin.core.op import Answer
from odin.ui.permission_text import list_offered_rules, summarize_change

Ask = Callable[[str, Any], Awaitable[Any]]

_EDIT = "edit"
_REASON = "deny_reason"
_REVISE = "revise"
_NO_ANSWER = "The editor could not show this: {}"

UNSHOWN_QUESTION = "This editor shows no forms, so it could not ask this. Write the answer as your next message:"


class QuestionAsker:
    """Asks one editor what one session wants to know. `has_forms`: the editor can show forms."""

    def __init__(self, ask: Ask, session: str, cwd: str, tell: Callable[[str], None], *, has_forms: bool) -> None:
        self._ask = ask
        self._session = session
        self._cwd = cwd
        self._tell = tell
        self._has_forms = has_forms

    async def answer(self, interaction: Interaction) -> Answer:
        """Ask the user and return the answer."""
        try:
            if interaction.kind == "permission":
                return await self._ask_permission(interaction)
            if interaction.kind == "plan":
                return await self._present_plan(interaction)
            return await self._ask_questions(interaction)
        except EditorRefused as error:
            return Answer(interaction.id, interaction.default, _NO_ANSWER.format(error), by="editor")

    # --- permissions and plans ---

    async def _ask_permission(self, asked: Interaction) -> Answer:
        rules = list_offered_rules(asked)
        options = list(_list_permission_options(asked, rules))
        if self._has_forms:
            is_editable = any("args" in choice.fields for choice in asked.choices if choice.key == "allow_once")
            if is_editable and any(isinstance(value, str) for value in asked.permission.args.values()):
                at = next(at for at, option in enumerate(options) if option.kind.startswith("reject"))
                options.insert(at, PermissionOption(option_id=_EDIT, name="Edit, then allow…", kind="allow_once"))
            options.append(PermissionOption(option_id=_REASON, name="Deny, and say why…", kind="reject_once"))
        chosen = await self._choose(asked, options, tuple(_list_facts(asked, self._cwd)))
        if chosen == _EDIT:
            return await self._edit_arguments(asked)
        if chosen == _REASON:
            return Answer(asked.id, "deny", await self._ask_text(asked, "Reason for the model") or "")
        if chosen is None:
            return _dismiss(asked)
        choice = asked.find_choice(chosen)
        return Answer(asked.id, choice.key, rule=rules[0] if choice.scope is not None and rules else "")

    async def _present_plan(self, asked: Interaction) -> Answer:
        options = [
            PermissionOption(option_id=choice.key, name=choice.label, kind=kind)
            for choice in asked.choices
            if (kind := _PLAN_KINDS.get(choice.key)) is not None and (choice.key != _REVISE or self._has_forms)
        ]
        chosen = await self._choose(asked, options, tuple(make_text(detail.text) for detail in asked.details))
        if chosen == _REVISE:
            text = await self._ask_text(asked, "What should change?")
            return Answer(asked.id, _REVISE if text else asked.default, text or "")
        return _dismiss(asked) if chosen is None else Answer(asked.id, chosen)

    async def _choose(
        self, asked: Interaction, options: Sequence[PermissionOption], content: tuple[CallContent, ...]
    ) -> str | None:
        """Return the id of the chosen option; None if the editor cancelled the request."""
        call = CallFields(
            tool_call_id=asked.call_id or asked.id,
            title=f"{asked.agent}: {asked.title}" if asked.agent else asked.title,
            kind=find_kind(asked.permission.name) if asked.kind == "permission" else "switch_mode",
            status="pending",
            content=content,
            locations=tuple(self._list_places(asked)),
            raw_input=asked.permission.args if asked.kind == "permission" else {"title": asked.title},
        )
        request = ToolPermissionRequest(session_id=self._session, tool_call=call, options=tuple(options))
        outcome: Any = await self._ask("session/request_permission", request)
        outcome = outcome.get("outcome") if isinstance(outcome, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        chosen: Any = cast("dict[str, Any]", outcome).get("optionId") if isinstance(outcome, dict) else None
        if chosen is not None and all(option.option_id != chosen for option in options):
            raise EditorRefused(f"it chose {chosen!r}, which was not offered.")
        return chosen

    def _list_places(self, asked: Interaction) -> Iterator[Any]:
        if asked.kind == "permission":
            yield from list_locations(asked.permission.args, asked.permission.preview, self._cwd)

    async def _edit_arguments(self, asked: Interaction) -> Answer:
        before = asked.permission.args
        texts = {name: value for name, value in before.items() if isinstance(value, str)}
        fields = {name: {"type": "string", "title": name, "default": value} for name, value in texts.items()}
        given = await self._fill_in(asked, f"Edit the arguments: {asked.title}", fields, ())
        if given is None:
            return await self._ask_permission(asked)
        args = {**before, **{name: value for name, value in given.items() if name in texts and isinstance(value, str)}}
        return Answer(asked.id, "allow_once", args=args, summary=summarize_change(before, args))

    async def _ask_text(self, asked: Interaction, label: str) -> str | None:
        given = await self._fill_in(asked, label, {"text": {"type": "string", "title": label}}, ("text",))
        return None if given is None else str(given.get("text", ""))

    # --- questions ---

    async def _ask_questions(self, asked: Interaction) -> Answer:
        if self._has_forms:
            return await self._ask_in_form(asked)
        if not all(field.options for field in asked.form):
            texts = (f"- {field.label}: {field.text}" if field.label else f"- {field.text}" for field in asked.form)
            self._tell("\n".join((UNSHOWN_QUESTION, *texts)))
            return Answer(asked.id, "cancel")
        answers: list[tuple[str, ...]] = []
        for field in asked.form:
            options = [
                PermissionOption(option_id=str(number), name=option.label, kind="allow_once")
                for number, option in enumerate(field.options)
            ]
            options.append(PermissionOption(option_id="cancel", name="No answer", kind="reject_once"))
            details = [f"- {option.label}: {option.detail}" for option in field.options if option.detail]
            chosen = await self._choose(asked, options, (make_text("\n".join((field.text, *details))),))
            if chosen is None or chosen == "cancel":
                return Answer(asked.id, "cancel")
            answers.append((field.options[int(chosen)].label,))
        return Answer(asked.id, "answer", answers=tuple(answers))

    async def _ask_in_form(self, asked: Interaction) -> Answer:
        """Ask all questions in one form. One with options that takes own words, too, has a second field for these."""
        fields: dict[str, Any] = {}
        required: list[str] = []
        for number, field in enumerate(asked.form):
            fields[f"q{number}"] = _make_property(field)
            if field.options and field.type != "choice":
                fields[f"q{number}_own"] = {
                    "type": "string",
                    "title": f"{field.label or field.text}: in your own words",
                }
            elif field.required and not field.options:
                required.append(f"q{number}")
        problem = ""
        while True:
            given = await self._fill_in(asked, problem or asked.reason, fields, required)
            if given is None:
                return Answer(asked.id, "cancel")
            answers = tuple(_read_answer(field, number, given) for number, field in enumerate(asked.form))
            problems = (field.find_problem(words) for field, words in zip(asked.form, answers, strict=True))
            problem = next(filter(None, problems), "")
            if not problem:
                return Answer(asked.id, "answer", answers=answers)

    async def _fill_in(
        self, asked: Interaction, message: str, fields: dict[str, Any], required: Sequence[str]
    ) -> dict[str, Any] | None:
        """Return what the user filled in; None if the user declined."""
        schema: dict[str, Any] = {"type": "object", "properties": fields}
        request = FormRequest(
            session_id=self._session,
            message=message,
            requested_schema={**schema, "required": list(required)} if required else schema,
            tool_call_id=asked.call_id or UNSET,
        )
        given: Any = await self._ask("elicitation/create", request)
        if not isinstance(given, dict) or given.get("action") != "accept":  # pyright: ignore[reportUnknownMemberType]
            return None
        content: Any = cast("dict[str, Any]", given).get("content")
        return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


_PLAN_KINDS: dict[str, Any] = {
    "approve": "allow_once",
    "approve_edits": "allow_always",
    _REVISE: "reject_once",
    "keep_planning": "reject_once",
}
"""An editor keeps its session, so a plan cannot be carried out in a new one."""


def _dismiss(asked: Interaction) -> Answer:
    """Return the answer to what was closed without one: as Escape in the app, it denies and stops the work."""
    is_stop_offered = any(choice.key == "stop" for choice in asked.choices)
    return Answer(asked.id, "stop" if is_stop_offered else asked.default)


def _list_permission_options(asked: Interaction, rules: Sequence[str]) -> Iterator[PermissionOption]:
    """Yield the choices: once, the narrowest rule for the session and for the project, deny, and a rule that denies."""
    kinds: dict[str, Any] = {
        "allow_once": "allow_once",
        "allow_session": "allow_always",
        "allow_project": "allow_always",
        "deny": "reject_once",
        "deny_always": "reject_always",
    }
    choices = {choice.key: choice for choice in asked.choices}
    for key, kind in kinds.items():
        choice = choices.get(key)
        if choice is None or (choice.scope is not None and not rules):
            continue
        name = f"{choice.label}: {rules[0]}" if choice.scope is not None else choice.label
        yield PermissionOption(option_id=key, name=name, kind=kind)


def _list_facts(asked: Interaction, cwd: str) -> Iterator[CallContent]:
    """Yield what the user needs to know, in the order of the app: why, what, where it runs, and the changes."""
    told = [asked.reason, asked.effect, *asked.warnings, asked.sandbox]
    if text := "\n\n".join(dict.fromkeys(filter(None, told))):
        yield make_text(text)
    for detail in asked.details:
        if detail.heading:
            yield make_text(detail.heading)
        if detail.kind == "diff":
            yield from list_diffs(detail.text, cwd)
        elif detail.kind == "quote":
            yield from quote(detail.text)
        else:
            yield make_text(detail.text)


def _make_property(field: FormField) -> dict[str, Any]:
    title = field.label or field.text
    about: dict[str, Any] = {"title": title, **({"description": field.text} if field.text != title else {})}
    options = [
        {"const": option.label, "title": f"{option.label}: {option.detail}" if option.detail else option.label}
        for option in field.options
    ]
    low, high = field.minimum, field.maximum
    if field.multiple:
        limits = {"minItems": low, "maxItems": high}
        shape: dict[str, Any] = {"type": "array", "items": {"anyOf": options}}
    elif options:
        limits, shape = {}, {"type": "string", "oneOf": options}
    elif field.type in ("number", "integer"):
        limits, shape = {"minimum": low, "maximum": high}, {"type": field.type}
    else:
        formats = {} if field.type == "text" else {"format": field.type}
        limits, shape = {"minLength": low, "maxLength": high}, {"type": "string", **formats}
    is_whole = field.type != "number"
    given = {name: int(limit) if is_whole else limit for name, limit in limits.items() if limit is not None}
    return {**shape, **about, **given}


def _read_answer(field: FormField, number: int, given: dict[str, Any]) -> tuple[str, ...]:
    """Return the answer to a question. Own words count more than an option; nothing is the first option."""
    own, value = given.get(f"q{number}_own"), given.get(f"q{number}")
    if isinstance(own, str) and own.strip():
        return (own,)
    if isinstance(value, list):
        return tuple(map(str, cast("list[Any]", value)))
    return () if value is None or value == "" else (str(value),)
