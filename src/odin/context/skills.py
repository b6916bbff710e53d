"""Skills: folders with a SKILL.md that teach the model a task (agentskills.io), and the catalog of them by name.

The prompt has only names and descriptions. The text of a skill is read when the model or the user uses it, and its
other files when they are needed. Of two skills with the same name the first one counts. The files are read by
`skill_files`, and only if there are any.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from odin.context.markdown_folder import to_plain_line
from odin.core.errors import UsageError
from odin.core.format import clip
from odin.core.text import join_some, suggest_similar

MAX_PROMPT_SKILLS = 32
MAX_PROMPT_LINE = 160
MAX_PROMPT_CHARS = 4_000
_MAX_LISTED = 300
_MAX_NAMED = 10

SkillSource = Literal["project", "user", "extra", "plugin"]


class SkillFolder(Struct, frozen=True):
    """A folder of skills. With `within`, anything that leads outside that folder is skipped.

    Skills of a `plugin` are also called `plugin:name`.
    """

    folder: str
    source: SkillSource
    within: str = ""
    plugin: str = ""


class Skill(Struct, frozen=True):
    """One skill. `path` is its SKILL.md, `folder` the folder around it without links, `plugin_root` that of its plugin.

    `allowed_tools` are the permission rules it brings. `for_model`: the model may use it by itself; `for_user`: it is
    also a slash command. `stamp` identifies the content of a file that must not change, otherwise it is None.
    """

    name: str
    description: str
    path: str
    folder: str
    source: SkillSource
    plugin: str = ""
    allowed_tools: tuple[str, ...] = ()
    hint: str = ""
    arguments: tuple[str, ...] = ()
    for_model: bool = True
    for_user: bool = True
    stamp: tuple[int, int, int] | None = None
    plugin_root: str = ""

    @property
    def qualified_name(self) -> str:
        """The name with the plugin's, under which the skill is listed if another one has its plain name."""
        return self.name if not self.plugin or ":" in self.name else f"{self.plugin}:{self.name}"

    @property
    def shown_path(self) -> str:
        return to_plain_line(self.path)


class SkillProblem(Struct, frozen=True):
    """A mistake in a skill. `fatal`: it cannot be used. `strict`: it works here, but the standard forbids it."""

    path: str
    line: int
    text: str
    fatal: bool = False
    strict: bool = False

    def describe(self) -> str:
        return ":".join(filter(None, (self.path, str(self.line or "")))) + f": {self.text}"


class SkillCatalog:
    """Skills by name, in the order of their sources. Case does not matter.

    A skill of a plugin has its plain name only if nothing before it has that name.
    """

    def __init__(self, skills: Iterable[Skill] = (), problems: Iterable[SkillProblem] = ()) -> None:
        self._skills: dict[str, Skill] = {}
        self._qualified: dict[str, Skill] = {}
        found = list(problems)
        for skill in skills:
            first = self._skills.setdefault(skill.name.casefold(), skill)
            if skill.plugin:
                self._qualified.setdefault(skill.qualified_name.casefold(), skill)
            elif first is not skill and first.source == skill.source and first.folder != skill.folder:
                text = f"The name {skill.name} is already used in {first.shown_path}. This skill is ignored."
                found.append(SkillProblem(skill.shown_path, 1, text))
        self.problems = tuple(found)

    def __bool__(self) -> bool:
        return bool(self._skills)

    def list_skills(self) -> tuple[Skill, ...]:
        """Return all skills under the names by which they are shown."""
        hidden = (skill for skill in self._qualified.values() if self._skills[skill.name.casefold()] is not skill)
        return (*self._skills.values(), *map(_add_plugin_name, hidden))

    def find(self, name: str) -> Skill | None:
        """Return the skill with this name, under the name by which it is shown."""
        key = name.strip().removeprefix("/").casefold()
        found = self._skills.get(key) or self._qualified.get(key)
        return found if found is None or self._skills[found.name.casefold()] is found else _add_plugin_name(found)

    def get(self, name: str) -> Skill:
        """Return the skill with this name. Raise UsageError that names similar ones if there is none."""
        found = self.find(name)
        if found is not None:
            return found
        names = [skill.name for skill in self.list_skills()]
        known = f"The skills are: {join_some(names, _MAX_NAMED)}." if names else "There are no skills."
        raise UsageError(f"There is no skill {to_plain_line(name)!r}.{suggest_similar(name, names)}", known)

    def select(self, is_wanted: Callable[[Skill], bool]) -> "SkillCatalog":
        """Return the catalog of these skills."""
        both = dict.fromkeys((*self._skills.values(), *self._qualified.values()))
        return SkillCatalog((skill for skill in both if is_wanted(skill)), self.problems)

    # --- texts for the model ---

    def describe_for_prompt(self, *, brief: bool = False) -> str:
        """Return the block of the system prompt, or "" without skills that the model may use."""
        offered = [skill for skill in self.list_skills() if skill.for_model]
        if not offered:
            return ""
        lines, size = [_PROMPT_HEAD], len(_PROMPT_HEAD) + len(_describe_left(len(offered))) + 1
        for skill in offered[:MAX_PROMPT_SKILLS]:
            line = f"- {skill.name}" if brief else clip(f"- {skill.name}: {skill.description}", MAX_PROMPT_LINE)
            size += len(line) + 1
            if size > MAX_PROMPT_CHARS:
                break
            lines.append(line)
        left = len(offered) - (len(lines) - 1)
        return "\n".join([*lines, *([_describe_left(left)] if left else [])])

    def describe_all(self) -> str:
        """Return one line for each skill that the model may use."""
        offered = [skill for skill in self.list_skills() if skill.for_model]
        lines = [f"- {skill.name}: {clip(skill.description, MAX_PROMPT_LINE)}" for skill in offered[:_MAX_LISTED]]
        more = [f"+{len(offered) - _MAX_LISTED} more"] if len(offered) > _MAX_LISTED else []
        return "\n".join([*lines, *more]) or "There are no skills."


def _add_plugin_name(skill: Skill) -> Skill:
    return replace(skill, name=skill.qualified_name)


def _describe_left(count: int) -> str:
    return f"+{count} more; Skill without a name lists them"


_PROMPT_HEAD = """\
# Skills
Instructions for certain tasks. If the task matches one, call Skill with its name first and follow what it returns."""
