"""The skills of a session: which folders are read, what each agent sees of them, and the event of their use.

Imported only if there is a folder of skills.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.app.roles import make_rules
from odin.app.workspace import list_project_skill_folders, list_skill_folders
from odin.config import Config
from odin.config.layers import TRUST_HINT
from odin.config.settings import Plugin
from odin.context.skill_files import check_skills, fill_skill, find_line, load_skills
from odin.context.skills import Skill, SkillCatalog, SkillFolder, SkillProblem
from odin.core.call_events import SkillUsed
from odin.core.client import SkillSummary
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.core.path_names import contains
from odin.core.text import to_valid_unicode
from odin.core.tool import Target
from odin.policy.command_scope import CommandScope
from odin.policy.modes import EDIT
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.rule import Rule
from odin.policy.rules.skill_rules import explain_no_effect, list_effective_rules
from odin.tools.skill import SkillTool

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
            skill.shown_path,
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
        for text in skill.allowed_tools:
            if why := explain_no_effect(text):
                found = f"allowed-tools: {text} has no effect. {why}"
                problems.append(SkillProblem(skill.shown_path, find_line(skill, text), found, strict=True))
    return summarize_skills(SkillCatalog(skills)), tuple(problems)


def list_project_skills(config: Config) -> tuple[Skill, ...]:
    """Return the skills of a project, whether it is trusted or not. They are used only if it is."""
    folders = list_project_skill_folders(config)
    return load_skills(SkillFolder(folder, "project", config.root) for folder in folders).list_skills()


def describe_allowed(skill: Skill) -> str:
    """Return what a skill allows, for people who decide whether to trust it: ", which allows Read", or ""."""
    allowed = list_effective_rules(skill.allowed_tools)
    return f", which allows {', '.join(allowed)}" if allowed else ""


def list_plugin_skills(plugin: Plugin) -> tuple[Skill, ...]:
    """Return the skills of a plugin."""
    folders = (
        SkillFolder(f"{plugin.folder}/{name}", "plugin", plugin.folder, plugin.name) for name in plugin.skills.folders
    )
    return load_skills(folders).list_skills()


def describe_unused_skills(config: Config) -> str:
    """Return that the skills of an untrusted project are not used, or "" if there are none."""
    count = 0 if config.trust.trusted or not config.skills.enabled else len(list_project_skills(config))
    if not count:
        return ""
    skills = "The skill" if count == 1 else f"The {count} skills"
    return f"{skills} of {config.root} cannot be used: this folder is not trusted. {TRUST_HINT}"


class _NamedSkills(Struct, frozen=True):
    """The skills that a definition names: their texts, their use, and why some are left out."""

    texts: tuple[str, ...]
    used: tuple[SkillUsed, ...]
    problems: tuple[str, ...]


def _make_event(skill: Skill) -> SkillUsed:
    return SkillUsed(skill.name, to_valid_unicode(skill.path), rules=skill.allowed_tools)


class SessionSkills:
    """The skills of one session. They are read once, so that the prompt stays the same. Denied ones are left out."""

    def __init__(
        self, catalog: SkillCatalog, deny_rules: Iterable[Rule], root: str, environment: ExecutionEnvironment
    ) -> None:
        self._scope = CommandScope(root, root, environment)
        self._denied = tuple(rule for rule in deny_rules if rule.matches_tool("Skill"))
        self._all = catalog.select(lambda skill: not self._is_denied(skill, self._denied))
        self.offer_only(None)
        self._named: dict[str, _NamedSkills] = {}

    def _is_denied(self, skill: Skill, rules: Iterable[Rule]) -> bool:
        names = dict.fromkeys((skill.name, skill.qualified_name))
        calls = [PolicyCall("Skill", "interactive", Target(name=name), EDIT, None, self._scope) for name in names]
        return any(rule.matches_call(call) for rule in rules for call in calls)

    def offer_only(self, names: Collection[str] | None) -> tuple[str, ...]:
        """Offer only these skills, None: all of them. Return the names that no skill has."""
        found = {name: self._all.find(name) for name in names or ()}
        paths = {skill.path for skill in found.values() if skill is not None}
        self.catalog = self._all if names is None else self._all.select(lambda skill: skill.path in paths)
        self.summaries = summarize_skills(self.catalog)
        return tuple(name for name, skill in found.items() if skill is None)

    def list_warnings(self) -> list[str]:
        found = [problem.describe() for problem in self.catalog.problems]
        left = len(found) - _MAX_WARNINGS
        more = [f"{pluralize(left, 'more problem')} with skills. See `odin skills list`."] if left > 0 else []
        return [*found[:_MAX_WARNINGS], *more]

    def list_folders(self) -> tuple[str, ...]:
        """Return the folders of skills outside the project, whose files the model may read."""
        folders = {skill.folder for skill in self._all.list_skills() if skill.source != "project"}
        return tuple(sorted(folders))

    def get_catalog(self, definition: "AgentDefinition | None") -> SkillCatalog:
        """Return the skills of an agent: those that its definition names and that its own rules do not deny."""
        if definition is None:
            return self.catalog
        denied = [rule for rule in make_rules(definition) if rule.action == "deny" and rule.matches_tool("Skill")]
        if definition.skills is None and not denied:
            return self.catalog
        named = definition.skills
        if named is None:
            return self.catalog.select(lambda skill: not self._is_denied(skill, denied))
        chosen = {found.path for name in named if (found := self._all.find(name))}
        return self._all.select(lambda skill: skill.path in chosen and not self._is_denied(skill, denied))

    def build_blocks(self, definition: "AgentDefinition | None", *, offered: bool, brief: bool) -> tuple[str, ...]:
        """Return the blocks of an agent's prompt: a summary or, if its definition names skills, their texts.

        Without the Skill tool (`offered`) there is no summary.
        """
        catalog = self.get_catalog(definition)
        if definition is None or definition.skills is None:
            summary = catalog.describe_for_prompt(brief=brief) if offered else ""
            return (summary,) if summary else ()
        return self._preload(definition).texts

    # --- skills that a definition names ---

    def _preload(self, definition: "AgentDefinition") -> "_NamedSkills":
        """Return the skills whose texts are in the prompt of an agent. They are read once."""
        key = repr((definition.name, definition.skills, definition.rules, definition.denied_tools))
        if key not in self._named:
            self._named[key] = self._read_named(definition)
        return self._named[key]

    def _read_named(self, definition: "AgentDefinition") -> "_NamedSkills":
        missing = [name for name in definition.skills or () if self._all.find(name) is None]
        problems = [f"names skills that do not exist: {', '.join(missing)}."] if missing else []
        texts: list[str] = []
        used: list[SkillUsed] = []
        left = _MAX_PRELOADED_CHARS
        for skill in self.get_catalog(definition).list_skills():
            try:
                text = fill_skill(skill)
            except UsageError as error:
                problems.append(f"names a skill that is left out. {error.describe()}")
                continue
            if len(text) > left:
                limit = f"all of them together have at most {_MAX_PRELOADED_CHARS:,} characters"
                problems.append(f"names the skill {skill.name}, which is left out: {limit}.")
                continue
            left -= len(text)
            texts.append(text)
            used.append(_make_event(skill))
        about = f"The agent {definition.name}"
        return _NamedSkills(tuple(texts), tuple(used), tuple(f"{about} {problem}" for problem in problems))

    def find_named_problems(self, definition: "AgentDefinition | None") -> tuple[str, ...]:
        """Return why skills that a definition names are not in its prompt."""
        return self._preload(definition).problems if definition is not None and definition.skills else ()

    def list_named(self, definition: "AgentDefinition | None") -> tuple[SkillUsed, ...]:
        """Return the skills in the prompt of an agent, which it uses in every turn."""
        return self._preload(definition).used if definition is not None and definition.skills else ()

    def mark_named(self, recorder: "Recorder", agent: str, definition: "AgentDefinition | None") -> None:
        """Record that an agent uses the skills in its prompt, once."""
        known = recorder.state.skills.by_agent.get(agent, {})
        for used in self.list_named(definition):
            if used.name not in known:
                recorder.emit(used, agent)

    # --- the tool ---

    def make_tool(
        self, recorder: "Recorder", agent: str, get_definition: "Callable[[], AgentDefinition | None]"
    ) -> SkillTool:
        """Return the Skill tool of an agent. Each use is recorded."""

        def record(skill: Skill) -> None:
            recorder.emit(_make_event(skill), agent)

        return SkillTool(lambda: self.get_catalog(get_definition()), record)
