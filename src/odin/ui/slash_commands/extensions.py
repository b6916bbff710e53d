"""/skills and /use: the skills of a session as text, and the prompt that uses one."""

from odin.core.client import Client, SkillSummary
from odin.core.errors import UsageError
from odin.core.format import count_of, shorten_home
from odin.core.slash_commands import make_usage_error
from odin.core.text import suggest_similar
from odin.ui.terminal import escape_hidden, shorten

USED_MARK = "✓"
_NO_SKILLS = "No skills. They are folders with a SKILL.md in .odin/skills, .agents/skills or .claude/skills.\n"


async def format_skills(client: Client, name: str, columns: int) -> str:
    """Return a line for each skill, or everything about the one with this name."""
    info, shot = await client.get_info(), await client.snapshot()
    used = {skill for names in shot.used_skills.values() for skill in names}
    if name:
        return _describe_skill(_find_skill(info.skills, name), used)
    if not info.skills:
        return _NO_SKILLS
    width = max(len(skill.name) for skill in info.skills)
    lines = [
        f"{USED_MARK if skill.name in used else ' '} {skill.name:<{width}}  {skill.source:<8}  {skill.description}"
        for skill in info.skills
    ]
    marked = f"; {USED_MARK} marks those used in this session" if used else ""
    lines.append(f"{count_of(len(info.skills), 'skill')}{marked}. /NAME or /use NAME TEXT uses one.")
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines)


def _describe_skill(skill: SkillSummary, used: set[str]) -> str:
    facts = (
        ("description", skill.description),
        ("source", skill.source),
        ("file", shorten_home(skill.path)),
        ("allows", ", ".join(skill.allowed_tools)),
        (
            "used by",
            "you and the model" if skill.for_model and skill.for_user else "you" if skill.for_user else "the model",
        ),
        ("this session", "used" if skill.name in used else "not used yet"),
    )
    lines = [skill.name, *(f"  {label:<13} {value}" for label, value in facts if value)]
    return "".join(f"{escape_hidden(line)}\n" for line in lines)


def _find_skill(skills: tuple[SkillSummary, ...], name: str) -> SkillSummary:
    wanted = name.removeprefix("/").casefold()
    found = next((skill for skill in skills if skill.name.casefold() == wanted), None)
    if found is None:
        suggestion = suggest_similar(name, [skill.name for skill in skills])
        raise UsageError(f"There is no skill {name!r}.{suggestion}", "/skills lists the skills.")
    return found


async def make_skill_prompt(client: Client, rest: str) -> str:
    """Return the prompt that `/use NAME TEXT` stands for. Raise UsageError if there is no such skill."""
    name, _, text = rest.partition(" ")
    if not name:
        raise make_usage_error("use", "/use needs the name of a skill.")
    skill = _find_skill((await client.get_info()).skills, name)
    if not skill.for_user:
        raise UsageError(f"The skill {skill.name} is for the model only.", "Ask the model to use it.")
    return f"/{skill.name} {text}".strip()
