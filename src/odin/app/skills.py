"""The skills of a session: which folders are read, what each agent sees of them, and the event of their use.

Imported only if there is a folder of skills.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from odin.app.workspace import PROJECT_SKILL_FOLDERS, list_skill_folders
from odin.config import Config
from odin.config.layers import TRUST_HINT
from odin.config.settings import Plugin
from odin.context.skill_files import check_skills, fill_skill, load_skills
from odin.context.skills import Skill, SkillCatalog, SkillFolder, SkillProblem
from odin.core.call_events import SkillUsed
from odin.core.client import SkillSummary
from odin.core.errors import UsageError
from odin.core.format import count_of
from odin.core.path_names import contains
from odin.core.tool import Subject
from odin.policy.modes import EDIT
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.rule import Rule, parse_skill_rules
from odin.tools.knowledge import SkillTool

if TYPE_CHECKING:
    from odin.context.agent_definition import AgentDefinition
    from odin.engine.recorder import Recorder

_MAX_WARNINGS = 10
_MAX_PRELOADED_CHARS = 50_000
"""Characters of skills in the prompt of an agent whose definition names them."""


def load_skill_catalog(config: Config, env: Mapping[str, str]) -> SkillCatalog:
    """Return the skills of a project, its user and the plugins."""
    return load_skills(_list_folders(config, env))


def _list_folders(config: Config, env: Mapping[str, str]) -> Iterator[SkillFolder]:
    for folder, source in list_skill_folders(config, env):
        if source == "plugin":
            plugin = next(item for item in config.plugins if contains(item.folder, folder))
            yield SkillFolder(folder, source, plugin.folder, plugin.name)
        else:
            yield SkillFolder(folder, source, config.root if source == "project" else "")


def summarize_skills(catalog: SkillCatalog) -> tuple[SkillSummary, ...]:
    return tuple(
        SkillSummary(
            skill.name,
            skill.description,
            f"plugin {skill.plugin}" if skill.plugin else skill.source,
            skill.path,
            skill.for_model,
            skill.for_user,
            skill.allowed_tools,
        )
        for skill in catalog.list_skills()
    )


def check_skill_folder(folder: str) -> tuple[tuple[SkillSummary, ...], tuple[SkillProblem, ...]]:
    """Return the usable skills in a folder, and everything in them that is wrong or not standard."""
    skills, problems = check_skills(folder)
    for skill in skills:
        allowed = {rule.text for rule in parse_skill_rules(skill.allowed_tools)}
        for text in skill.allowed_tools:
            if text not in allowed:
                why = "It is not a rule, or it allows any command: name the commands, such as Bash(git log:*)."
                problems.append(SkillProblem(skill.path, 1, f"allowed-tools: {text} has no effect. {why}", strict=True))
    return summarize_skills(SkillCatalog(skills)), tuple(problems)


def list_project_skills(root: str) -> Iterator[Skill]:
    """Yield the skills of a project, whether it is trusted or not. They are used only if it is."""
    folders = (SkillFolder(f"{root}/{name}", "project", root) for name in PROJECT_SKILL_FOLDERS)
    yield from load_skills(folder for folder in folders if os.path.isdir(folder.folder)).list_skills()  # noqa: PTH112


def list_plugin_skills(plugin: Plugin) -> tuple[Skill, ...]:
    """Return the skills of a plugin."""
    folders = (
        SkillFolder(f"{plugin.folder}/{name}", "plugin", plugin.folder, plugin.name) for name in plugin.skills.folders
    )
    return load_skills(folders).list_skills()


def describe_unused_skills(config: Config) -> str:
    """Return that the skills of an untrusted project are not used, or "" if there are none."""
    count = 0 if config.trust.trusted or not config.skills.enabled else len(list(list_project_skills(config.root)))
    if not count:
        return ""
    skills = "The skill" if count == 1 else f"The {count} skills"
    return f"{skills} of {config.root} cannot be used: this folder is not trusted. {TRUST_HINT}"


class SessionSkills:
    """The skills of one session. They are read once, so that the prompt stays the same. Denied ones are left out."""

    def __init__(self, catalog: SkillCatalog, deny_rules: Iterable[Rule], root: str) -> None:
        self._root = root
        self._denied = tuple(rule for rule in deny_rules if rule.matches_tool("Skill"))
        self.catalog = catalog.select(lambda skill: not self._is_denied(skill, self._denied))
        self.summaries = summarize_skills(self.catalog)

    def _is_denied(self, skill: Skill, rules: Iterable[Rule]) -> bool:
        names = dict.fromkeys((skill.name, skill.qualified_name))
        calls = [PolicyCall("Skill", "talk", Subject(name=name), EDIT, None, self._root, self._root) for name in names]
        return any(rule.matches_call(call) for rule in rules for call in calls)

    def list_warnings(self) -> list[str]:
        found = [problem.describe() for problem in self.catalog.problems]
        left = len(found) - _MAX_WARNINGS
        more = [f"{count_of(left, 'more problem')} with skills. See `odin skills list`."] if left > 0 else []
        return [*found[:_MAX_WARNINGS], *more]

    def list_folders(self) -> tuple[str, ...]:
        """Return the folders of skills outside the project, whose files the model may read."""
        folders = {skill.folder for skill in self.catalog.list_skills() if skill.source != "project"}
        return tuple(sorted(folders))

    def catalog_of(self, definition: "AgentDefinition | None") -> SkillCatalog:
        """Return the skills of an agent: those that its definition names and that its own rules do not deny."""
        if definition is None:
            return self.catalog
        from odin.app.roles import rules_of

        denied = [rule for rule in rules_of(definition) if rule.action == "deny" and rule.matches_tool("Skill")]
        if definition.skills is None and not denied:
            return self.catalog
        named = definition.skills
        chosen = None if named is None else [self.catalog.find(name) for name in named]
        return self.catalog.select(
            lambda skill: (chosen is None or skill in chosen) and not self._is_denied(skill, denied)
        )

    def build_blocks(self, definition: "AgentDefinition | None", *, offered: bool, brief: bool) -> tuple[str, ...]:
        """Return the blocks of an agent's prompt: a summary or, if its definition names skills, their texts.

        Without the Skill tool (`offered`) there is no summary.
        """
        catalog = self.catalog_of(definition)
        if definition is None or definition.skills is None:
            summary = catalog.describe_for_prompt(brief=brief) if offered else ""
            return (summary,) if summary else ()
        return tuple(self._fill_all(catalog))

    def _fill_all(self, catalog: SkillCatalog) -> Iterator[str]:
        left = _MAX_PRELOADED_CHARS
        for skill in catalog.list_skills():
            try:
                text = fill_skill(skill)
            except UsageError:
                continue
            left -= len(text)
            if left >= 0:
                yield text

    def describe_missing(self, definition: "AgentDefinition | None") -> str:
        """Return which skills a definition names that do not exist, or ""."""
        named = definition.skills or () if definition is not None else ()
        missing = [name for name in named if self.catalog.find(name) is None]
        if definition is None or not missing:
            return ""
        return f"The agent {definition.name} names skills that do not exist: {', '.join(missing)}."

    def make_tool(
        self, recorder: "Recorder", agent: str, get_definition: "Callable[[], AgentDefinition | None]"
    ) -> SkillTool:
        """Return the Skill tool of an agent. Each use is recorded."""

        def record(skill: Skill) -> None:
            recorder.emit(SkillUsed(skill.name, skill.path, rules=skill.allowed_tools), agent)

        return SkillTool(lambda: self.catalog_of(get_definition()), record)
