"""Skill: gives the model the instructions of a skill."""

import asyncio
from collections.abc import Callable

from odin.context.skill_files import fill_skill
from odin.context.skills import Skill, SkillCatalog
from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput, fail


class SkillArgs(Args, frozen=True):
    name: str = ""
    arguments: str = ""


class SkillTool(Tool[SkillArgs]):
    """Return the instructions of a skill; without a name list the skills."""

    name = "Skill"
    kind = "interactive"
    short = "Return the instructions of a skill."
    args = SkillArgs
    argument_aliases = (("skill", "name"), ("skill_name", "name"), ("args", "arguments"), ("command", "name"))

    def __init__(self, skills: Callable[[], SkillCatalog], on_used: Callable[[Skill], None]) -> None:
        self._list_skills = skills
        self._on_used = on_used

    def get_target(self, args: SkillArgs) -> Target:
        """Return the skill's own names: `/PDF` is `pdf`, so that no spelling gets around a rule."""
        found = self._list_skills().find(args.name)
        if found is None:
            return Target(name=args.name.strip())
        return Target(name=found.name, other_name=found.qualified_name)

    def _get_name(self, args: SkillArgs) -> str:
        return self.get_target(args).name

    def get_title(self, args: SkillArgs) -> str:
        return " ".join(f"{self._get_name(args)} {args.arguments}".split()) or "the list"

    async def run(self, args: SkillArgs, ctx: ToolContext) -> ToolOutput:
        catalog = self._list_skills()
        if not args.name.strip():
            count = pluralize(len(catalog.list_skills()), "skill")
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
