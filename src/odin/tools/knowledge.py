"""Skill and Memory: give the model the instructions of a skill, and let it keep facts for later sessions."""

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol

from odin.context.skill_files import fill_skill
from odin.context.skills import Skill, SkillCatalog
from odin.core.errors import OdinError, UsageError
from odin.core.format import count_of
from odin.core.tool import Args, Subject, Tool, ToolContext, ToolOutput, fail


class SkillArgs(Args, frozen=True):
    name: str = ""
    arguments: str = ""


class SkillTool(Tool[SkillArgs]):
    """Return the instructions of a skill; without a name list the skills."""

    name = "Skill"
    kind = "talk"
    short = "Return the instructions of a skill."
    args = SkillArgs
    argument_aliases = (("skill", "name"), ("skill_name", "name"), ("args", "arguments"), ("command", "name"))

    def __init__(self, skills: Callable[[], SkillCatalog], on_used: Callable[[Skill], None]) -> None:
        self._list_skills = skills
        self._on_used = on_used

    def subject_of(self, args: SkillArgs) -> Subject:
        """Return the skill's own names: `/PDF` is `pdf`, so that no spelling gets around a rule."""
        found = self._list_skills().find(args.name)
        if found is None:
            return Subject(name=args.name.strip())
        return Subject(name=found.name, other_name=found.qualified_name)

    def _name_of(self, args: SkillArgs) -> str:
        return self.subject_of(args).name

    def title_of(self, args: SkillArgs) -> str:
        return " ".join(f"{self._name_of(args)} {args.arguments}".split()) or "the list"

    async def run(self, args: SkillArgs, ctx: ToolContext) -> ToolOutput:
        catalog = self._list_skills()
        if not args.name.strip():
            count = count_of(len(catalog.list_skills()), "skill")
            return ToolOutput(text=catalog.describe_all(), note=f"Listed {count}")
        try:
            skill = catalog.get(args.name)
            if not skill.for_model:
                return fail(f"The skill {skill.name} is for the user only, who can type /{skill.name}.")
            text = await asyncio.to_thread(fill_skill, skill, args.arguments, {"CLAUDE_SESSION_ID": ctx.session})
        except UsageError as error:
            return fail(error.describe())
        self._on_used(skill)
        return ToolOutput(text=text, note=f"Used the skill {skill.name}", view=f"{skill.name}: {skill.description}")


MemoryScope = Literal["project", "user"]


class MemoryKeeper(Protocol):
    """The memory of a project and its user. Every method returns a sentence for the model, or raises UsageError."""

    def add(self, scope: MemoryScope, text: str, *, daily: bool = False) -> str: ...

    def replace(self, scope: MemoryScope, old: str, new: str) -> str: ...

    def read(self, scope: MemoryScope, day: str = "") -> str: ...


class MemoryArgs(Args, frozen=True):
    action: Literal["add", "note", "replace", "remove", "read"]
    text: str = ""
    old: str = ""
    scope: MemoryScope = "project"


class MemoryTool(Tool[MemoryArgs]):
    """Keep what later sessions need and files do not say: decisions, preferences, pitfalls. No secrets, no progress.

    add: a line to the long-term memory. note: a line to today's note. replace or remove: the exact text `old`.
    read: all of it, or the note of the day `text` (YYYY-MM-DD). Use scope user only for what holds in every project.
    """

    name = "Memory"
    kind = "talk"
    short = "Keep or read facts for later sessions."
    args = MemoryArgs

    def __init__(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper

    def subject_of(self, args: MemoryArgs) -> Subject:
        is_read = args.action == "read"
        return Subject(name="read" if is_read else args.scope, persists=not is_read)

    def title_of(self, args: MemoryArgs) -> str:
        return " ".join(f"{args.action} {args.scope}: {args.text or args.old}".split())

    def refusal_of(self, args: MemoryArgs) -> str:
        if args.action in ("add", "note", "replace") and not args.text.strip():
            return f"{args.action} needs a text."
        return f"{args.action} needs the old text." if args.action in ("replace", "remove") and not args.old else ""

    async def run(self, args: MemoryArgs, ctx: ToolContext) -> ToolOutput:
        try:
            text = await asyncio.to_thread(self._work, args)
        except OdinError as error:
            return fail(error.describe())
        return ToolOutput(text=text, note=f"Memory: {self.title_of(args)}", view=args.text or args.old)

    def _work(self, args: MemoryArgs) -> str:
        match args.action:
            case "add" | "note":
                return self._keeper.add(args.scope, args.text, daily=args.action == "note")
            case "replace":
                return self._keeper.replace(args.scope, args.old, args.text)
            case "remove":
                return self._keeper.replace(args.scope, args.old, "")
            case "read":
                return self._keeper.read(args.scope, args.text.strip())
