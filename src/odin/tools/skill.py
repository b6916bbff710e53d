"""Skill: gives the model the instructions of a skill when a task needs them."""

from collections.abc import Callable

from odin.context.skill_files import fill_skill
from odin.context.skills import Skill, SkillCatalog
from odin.core.errors import UsageError
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
        return Subject(name=self._name_of(args))

    def _name_of(self, args: SkillArgs) -> str:
        """Return the skill's own name: `/PDF` is `pdf`, so that no spelling gets around a rule."""
        found = self._list_skills().find(args.name)
        return found.name if found is not None else args.name.strip()

    def title_of(self, args: SkillArgs) -> str:
        return " ".join(f"{self._name_of(args)} {args.arguments}".split()) or "the list"

    async def run(self, args: SkillArgs, ctx: ToolContext) -> ToolOutput:
        import asyncio

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
