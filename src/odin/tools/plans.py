"""Handoff: saves a plan as `.odin/plans/plan-NNN.md` and asks the user what to do with it.

`PlanFolder` reads and writes the plans of a project. It never leaves its folder and follows no links, because the user
approves no call of it: a project could bring links that lead elsewhere.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from odin.context.file_cache import FileCache, hash_bytes, take_fingerprint
from odin.core.errors import ExternalModification, NeedsConfirmation
from odin.core.event_values import DEFAULT_ROLE
from odin.core.lazy_pattern import compile_lazily
from odin.core.op import Answer
from odin.core.text import list_choices, to_valid_unicode
from odin.core.timing import run_in_thread
from odin.core.tool import Args, AskPlan, PlanProposal, ToolContext, ToolOutput
from odin.policy.paths import name_in, open_folder, open_parent
from odin.tools.files import FileTool, Refusal, to_printable

PLANS = ".odin/plans"
MAX_BYTES = 200_000
_MAX_ATTEMPTS = 1000
_NUMBERED = compile_lazily(r"plan-(\d{1,9})\.md")
_HEADING = compile_lazily(r"\s*#\s+(\S.*)")


class Plan(Struct, frozen=True):
    """A saved plan. `path` is absolute."""

    path: str
    text: str

    @property
    def title(self) -> str:
        """The first heading, or the name of the file."""
        found = _HEADING.match(self.text)
        return found[1].strip() if found else Path(self.path).name


class PlanFolder:
    """The plans of the project at `root`."""

    def __init__(self, root: str) -> None:
        self.path = f"{os.path.realpath(root)}/{PLANS}"

    def find(self, name: str, cwd: str) -> str:
        """Return the path of the plan with this name or path; "" is the one with the highest number.

        Raise Refusal if there is none, or the path leads elsewhere.
        """
        if not name.strip():
            numbers = self._list_numbers()
            if not numbers:
                raise Refusal(f"There is no plan in {PLANS} yet.")
            return self._get_path(max(numbers))
        folder = self.path if "/" not in name else os.path.realpath(cwd)
        path = os.path.normpath(str(Path(folder, name)))
        if str(Path(path).parent) != self.path or "\0" in name:
            raise Refusal(f"{name} is not in {PLANS}, where plans are.")
        return path

    def read(self, name: str, cwd: str) -> Plan:
        """Return the plan with this name or path; "" is the newest. Raise Refusal if it is missing or empty."""
        path = self.find(name, cwd)
        data = self._read_bytes(path)
        if data is None:
            raise Refusal(f"There is no plan {self._shorten(path)}.")
        text = data.decode("utf-8", "replace")
        if not text.strip():
            raise Refusal(f"The plan {self._shorten(path)} is empty.")
        return Plan(path, text)

    def write_new(self, text: str) -> tuple[str, os.stat_result]:
        """Save a plan under the next free number. Return its path and status."""
        from odin.tools.atomic_write import replace_file

        data = _encode(text)
        for number in range(max(self._list_numbers(), default=0) + 1, 10**9)[:_MAX_ATTEMPTS]:
            path = self._get_path(number)
            try:
                return path, replace_file(path, data, None)
            except Refusal as error:
                if error.kind != ExternalModification.__name__:  # another session took the number
                    raise
        raise Refusal(f"{PLANS} has no free number.")

    def rewrite(self, path: str, text: str, is_current: Callable[[bytes], bool]) -> os.stat_result:
        """Replace the text of a plan, unless its content is not current for the writer."""
        from odin.tools.atomic_write import replace_file

        before = self._read_bytes(path)
        if before is None:
            raise Refusal(f"There is no plan {self._shorten(path)}. Leave plan_path empty to save a new plan.")
        if not is_current(before):
            raise Refusal(f"You do not know the current text of {self._shorten(path)}. Read it first.")
        return replace_file(path, _encode(text), before)

    def _read_bytes(self, path: str) -> bytes | None:
        """Return the content, or None if there is no such file."""
        try:
            with open_parent(path) as folder:
                name = name_in(path)
                kind = folder.read_status(name).st_mode
                if stat.S_ISDIR(kind):
                    raise Refusal(f"{self._shorten(path)} is a directory, not a plan.")
                if not stat.S_ISREG(kind):
                    raise Refusal(f"{self._shorten(path)} is not a regular file.")
                with open(folder.open_file(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
                    data = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(data) > MAX_BYTES:
            raise Refusal(f"{self._shorten(path)} is larger than {MAX_BYTES} bytes.")
        return data

    def _list_numbers(self) -> list[int]:
        try:
            with open_folder(self.path) as folder:
                names = folder.list_names()
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [int(found[1]) for name in names if (found := _NUMBERED.fullmatch(name))]

    def _get_path(self, number: int) -> str:
        return f"{self.path}/plan-{number:03}.md"

    def _shorten(self, path: str) -> str:
        return f"{PLANS}/{name_in(path)}"


def _encode(text: str) -> bytes:
    try:
        data = f"{text.strip()}\n".encode()
    except UnicodeEncodeError:
        raise Refusal("The plan contains half of a surrogate pair, which is not a character.") from None
    if len(data) > MAX_BYTES:
        raise Refusal(f"The plan has {len(data)} bytes and may have {MAX_BYTES}. Write a shorter one.")
    return data


class HandoffRoles(Struct, frozen=True):
    """The role of the agent, and the roles that can carry out plans.

    `only_plans`: the role of the agent is not one of them; it hands its plans to others, in any mode.
    """

    current: str = DEFAULT_ROLE
    names: tuple[str, ...] = (DEFAULT_ROLE,)
    only_plans: bool = False


def _list(names: dict[str, str]) -> str:
    return list_choices(list(names.values()))


class HandoffArgs(Args, frozen=True):
    plan: Annotated[str, Meta(description="The plan in Markdown. Empty: present the saved plan.")] = ""
    title: str = ""
    plan_path: Annotated[str, Meta(description="The plan to revise or present. Empty: a new or the last one.")] = ""
    role: Annotated[str, Meta(description="Who should carry it out. Empty: builder.")] = ""


class HandoffTool(FileTool[HandoffArgs]):
    """Save your plan as .odin/plans/plan-NNN.md and present it to the user, who approves it or asks for changes.
    Call it when the plan is complete, and again with plan_path after changes."""

    name = "Handoff"
    kind = "interactive"
    short = "Save a plan and present it to the user for approval."
    args = HandoffArgs
    exclusive = True
    runs_last = True
    modes = ("plan_mode",)
    argument_aliases = (("path", "plan_path"), ("text", "plan"))

    def __init__(self, folder: PlanFolder, files: FileCache, ask: AskPlan | None, roles: Callable[[], HandoffRoles]):
        self._folder = folder
        self._files = files
        self._ask = ask
        self._roles = roles

    def get_title(self, args: HandoffArgs) -> str:
        return args.title or Plan(args.plan_path or "the last plan", args.plan).title

    async def work(self, args: HandoffArgs, ctx: ToolContext) -> ToolOutput:
        roles = self._roles()
        if ctx.mode != "plan_mode" and not roles.only_plans:
            raise Refusal("Plans are presented in plan mode. Here, do the work yourself.")
        # The roles that can carry out a plan, the chosen one first. Without a choice that is the own role, which plans
        # in plan mode only, or else builder. Raise Refusal if the chosen role cannot carry it out.
        default = DEFAULT_ROLE if roles.only_plans else roles.current
        names = {name.casefold(): name for name in roles.names}
        given = args.role.strip()
        if given and given.casefold() not in names:
            if given.casefold() == roles.current.casefold():
                raise Refusal(f"You have the role {roles.current} yourself. Hand the plan to {_list(names)}.")
            raise Refusal(f"There is no role {given!r}. Use {_list(names)}.")
        chosen = names.get(given.casefold(), default)
        targets = tuple(sorted(names.values(), key=lambda name: (name != chosen, name != DEFAULT_ROLE)))
        output = await self._present(args, ctx, roles, targets)
        return replace(output, files=(output.plan_path,)) if args.plan.strip() else output

    async def _present(
        self, args: HandoffArgs, ctx: ToolContext, roles: HandoffRoles, targets: tuple[str, ...]
    ) -> ToolOutput:
        if args.plan.strip():
            plan = self._remember(*await run_in_thread(lambda _: self._save(args, ctx)))
        else:
            plan = self._folder.read(args.plan_path, ctx.cwd)
        proposal = PlanProposal(to_valid_unicode(plan.path), plan.title, plan.text, targets)
        name = os.path.relpath(plan.path, ctx.cwd)
        try:
            answer = None if self._ask is None else await self._ask(ctx.call_id, proposal)
        except NeedsConfirmation:
            answer = None
        except TimeoutError:
            text = f"The plan is saved as {name}. The user did not answer in time."
            return _end_turn(plan, name, "not decided", text)
        if answer is None:
            return _end_turn(plan, name, "saved", f"The plan is saved as {name}. No user is here to approve it.")
        if answer.plan.strip() and answer.plan.strip() != plan.text.strip():
            # Save the text as the user edited it. The user has just seen the plan, so it need not be read again.
            path, text = plan.path, answer.plan
            info = await run_in_thread(lambda _: self._folder.rewrite(path, text, lambda data: True))
            plan = self._remember(path, text.strip(), info)
        return _describe_answer(
            plan, answer, name, edited=plan.text != proposal.text, role=_get_new_role(answer, roles)
        )

    def _save(self, args: HandoffArgs, ctx: ToolContext) -> tuple[str, str, os.stat_result]:
        text = args.plan.strip()
        if args.title.strip() and not _HEADING.match(text):
            text = f"# {args.title.strip()}\n\n{text}"
        if not args.plan_path.strip():
            path, info = self._folder.write_new(text)
        else:
            path = self._folder.find(args.plan_path, ctx.cwd)
            info = self._folder.rewrite(path, text, lambda data: self._is_current(path, data))
        return path, text, info

    def _remember(self, path: str, text: str, info: os.stat_result) -> Plan:
        self._files.record_write(path, take_fingerprint(_encode(text), info))
        return Plan(path, text)

    def _is_current(self, path: str, data: bytes) -> bool:
        standing = self._files.compare(path, hash_bytes(data))
        return standing == "current" or (standing != "changed" and not self._files.read_first)


def _make_output(plan: Plan, name: str, outcome: str, text: str) -> ToolOutput:
    """Return the output of a call that presented the plan; `outcome` is the decision in a few words."""
    note = to_printable(f"{name}: {outcome}")
    return ToolOutput(text=to_printable(text), note=note, view=plan.text, plan_path=to_printable(plan.path))


def _end_turn(plan: Plan, name: str, outcome: str, text: str) -> ToolOutput:
    """Return the output that ends the turn with the plan as its answer."""
    return replace(_make_output(plan, name, outcome, text), answer=plan.text.strip())


def _get_new_role(answer: Answer, roles: HandoffRoles) -> str:
    """Return the new role of the agent that carries out the plan here; "" if it stays the same."""
    return answer.role if answer.plan_decision == "approve" and answer.role != roles.current else ""


def _describe_answer(plan: Plan, answer: Answer, name: str, *, edited: bool, role: str) -> ToolOutput:
    comment = f" The user says: {answer.text.strip()}" if answer.text.strip() else ""
    if edited:
        comment += f" The user edited the plan. It now reads:\n\n{plan.text}"
    if answer.plan_decision == "keep_planning":
        text = f"The plan is saved as {name}. The user has not decided about it yet.{comment}"
        return _end_turn(plan, name, "not decided", text)
    if answer.plan_decision == "approve_new_session":
        text = f"The user approved the plan {name}. A new session in the role {answer.role} carries it out.{comment}"
        return _end_turn(plan, name, "approved, in a new session", text)
    if answer.plan_decision == "revise":
        wanted = comment or " Improve it, or ask what to change."
        text = f"The user wants changes to the plan {name}.{wanted} Present the changed plan with plan_path={name}."
        return _make_output(plan, name, f"changes wanted: {answer.text.strip()}".removesuffix(": "), text)
    now = f"Your role is now {role}, the mode is edit_mode" if role else "The mode is now edit_mode"
    text = f"The user approved the plan {name}. {now}: carry out the plan.{comment}"
    return replace(_make_output(plan, name, "approved", text), mode="edit_mode")
