"""The request template of each mode: system prompt and tools, made once so that the cached prefix never changes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from odin.compaction.measure import estimate_tokens
from odin.config import Config, Options, get_config_dir, get_home_dir
from odin.context.instructions import (
    ODIN_MD,
    InstructionFile,
    InstructionReader,
    Instructions,
    PathRule,
    RefuseImport,
    load_agent_instructions,
    load_instructions,
    load_personal_files,
    reload_odin_md,
)
from odin.context.system_prompt import OutputStyle, SystemPrompt, SystemPromptSource
from odin.core.client import LoadedInstructions
from odin.core.event import InstructionsChanged
from odin.core.event_values import Mode
from odin.core.message import Message
from odin.core.path_names import contains
from odin.core.provider import ModelInfo
from odin.core.root import Root
from odin.core.tool import Registry, Tool
from odin.engine.turn import RequestTemplate
from odin.models.selection import ModelSelector
from odin.policy.modes import get_mode_spec
from odin.policy.paths import open_for_reading
from odin.providers.tool_adapters import fit_tools

if TYPE_CHECKING:
    from odin.app.path_instructions import PathInstructions
    from odin.app.skills import SessionSkills
    from odin.context.agent_definition import AgentDefinition

SMALL_CONTEXT_WINDOW = 16_384
"""Models with a context window up to this size get the short system prompt."""

MEDIUM_CONTEXT_WINDOW = 32_768
"""Models with a context window up to this size get short tool descriptions, and small ones fewer tools."""


FILES_PROMPT = "You are Odin, a coding agent. Do exactly what the task asks, and no more."
"""The main text of the system prompt for models that write whole files."""


class RequestTemplates:
    """Makes templates from the instruction files and the model in use. `system_prompt` replaces Odin's own."""

    def __init__(
        self,
        config: Config,
        options: Options,
        env: Mapping[str, str],
        cwd: str,
        system_prompt: SystemPromptSource | None,
        on_warning: Callable[[str], object],
        refuse_import: RefuseImport,
        roots: Sequence[Root] = (),
    ) -> None:
        home = str(get_home_dir(env))
        trusted_root = config.root if config.trust.trusted else ""
        own = load_personal_files(str(get_config_dir(env)), trusted_root, open_for_reading, home, refuse_import)
        # In the home folder, `.claude` is that of the user and of the project.
        found = load_instructions(config.root, cwd, open_for_reading, home, refuse_import, own.places)
        self.instructions = replace(
            found,
            personal=own.personal,
            warning=" ".join(filter(None, (found.warning, own.warning))),
            rules=(*own.rules, *found.rules),
            places=found.places,
        )
        self._home, self._refuse_import = home, refuse_import
        self._path_instructions: dict[str, PathInstructions] = {}
        self._of_roots: dict[str, Instructions] = {}
        """Those of the trusted folders besides the project; `files` are in the system prompt."""
        for root in roots:
            if root.trusted:
                self._of_roots[root.path] = of_root = self._load_root(root.path)
                guides = [InstructionFile(f"{root.path}/{ODIN_MD}", of_root.odin_md)] if of_root.odin_md else []
                self.instructions = replace(
                    self.instructions,
                    files=(*self.instructions.files, *guides, *of_root.files),
                    warning=" ".join(filter(None, (self.instructions.warning, of_root.warning))),
                    places=self.instructions.places | of_root.places,
                )
        self._on_warning = on_warning
        self.style: OutputStyle | None = None
        if config.output_style:
            warnings = [self.instructions.warning] if self.instructions.warning else []
            self.style = _load_style(config, env, warnings.append)
            self.instructions = replace(self.instructions, warning=" ".join(warnings))
        self.skills: SessionSkills | None = None
        self.memory = ""
        self._is_stale = False
        self._root = config.root
        self._edit_format = config.edit_format
        self._prompt = system_prompt or SystemPrompt(
            header=config.system_header,
            base=options.system_prompt,
            append=options.append_system_prompt,
            personal=self.instructions.personal_text,
            instructions=self.instructions.odin_md,
            other_instructions=self.instructions.files_text,
            allowed=config.allowed_commands,
            forbidden=config.forbidden_commands,
        )
        self._templates: dict[tuple[str, Mode, tuple[str, ...], tuple[object, ...]], RequestTemplate] = {}

    def get(
        self,
        mode: Mode,
        registry: Registry,
        models: ModelSelector,
        agent: "AgentDefinition | None" = None,
        base: str | None = None,
        *,
        is_styled: bool = False,
    ) -> RequestTemplate:
        """Return the template of a mode, with the prompt and the tools of the agent's definition.

        `base` replaces the main text of the system prompt. `is_styled`: the output style applies.

        It is made once, so that the cached prefix of requests never changes.
        """
        mode = mode if agent is None else agent.restrict_mode(mode)
        spec, named = get_mode_spec(mode), () if agent is None else agent.tools or ()
        offered = registry.list_offered(
            lambda tool: spec.allows_kind(tool.kind) if tool.name in named else spec.allows_tool(tool)
        )
        provider, info = models.provider, models.info
        if self._is_patching(info):
            offered = _offer_patches(offered, registry)
        if agent is not None:
            offered = tuple(tool for tool in offered if agent.has_tool(tool.name, tool.server_tool))
        style = self.style if is_styled else None
        own = (base,) if agent is None else (agent.name, agent.prompt, agent.instructions, agent.skills, base)
        key = (models.ref, mode, tuple(tool.name for tool in offered), (*own, style, registry.version))
        known = self._templates.get(key)
        if known is None or known.provider is not provider:
            specs = tuple(tool.build_spec() for tool in offered)
            window = SMALL_CONTEXT_WINDOW if info.is_small else info.context
            if 0 < window <= MEDIUM_CONTEXT_WINDOW:
                specs = fit_tools(specs, tuple(tool.build_spec(brief=True) for tool in offered), info)
            prompt = self._get_prompt(self._choose_base(base, info))
            if style is not None and isinstance(prompt, SystemPrompt):
                prompt = replace(prompt, style=style)
            system = prompt.build_blocks(mode, brief=0 < window <= SMALL_CONTEXT_WINDOW)
            if self.skills is not None:
                system = (*system, *self._build_skill_blocks(self.skills, agent, offered, info))
            system = (*system, *(text for source in registry.sources if (text := source.describe_to_model())))
            if self.memory and isinstance(self._prompt, SystemPrompt):
                system = (*system, self.memory)
            if agent is not None:
                system = (*system, *self._build_own_blocks(agent))
            self._templates[key] = RequestTemplate(provider, info, system, specs)
        elif known.info.options != info.options:
            self._templates[key] = replace(known, info=info)
        return self._templates[key]

    def list_loaded(self) -> Iterator[LoadedInstructions]:
        """Yield the instruction files in the system prompt."""
        if isinstance(self._prompt, SystemPrompt):
            known = self.instructions
            yours = (replace(guide, why=guide.why or "yours") for guide in known.personal)
            own = [InstructionFile(ODIN_MD, known.odin_md)] if known.odin_md else []
            for guide in (*yours, *own, *known.files):
                yield LoadedInstructions(guide.label, estimate_tokens(guide.text), guide.why)

    async def find_notes(self, paths: Sequence[str], root: str, history: Iterable[Message]) -> list[str]:
        """Return the instructions for these files that are not in the system prompt or the conversation.

        `root` is the project or a worktree of it.
        """
        if not paths or not isinstance(self._prompt, SystemPrompt):
            return []
        notes: list[str] = []
        for top, known in (("", self.instructions), *self._of_roots.items()):
            if top and not any(contains(top, path) for path in paths):
                continue
            if top not in self._path_instructions:
                from odin.app.path_instructions import PathInstructions

                prefix = f"{top}/" if top else ""

                def make_reader(root: str, prefix: str = prefix) -> InstructionReader:
                    places = self.instructions.places
                    return InstructionReader(root, open_for_reading, self._home, self._refuse_import, places, prefix)

                self._path_instructions[top] = PathInstructions(known, make_reader, self._on_warning, prefix)
            notes += await self._path_instructions[top].find_notes(paths, top or root, history)
        return notes

    def set_roots(self, roots: Iterable[Root]) -> None:
        """Use the instructions of the trusted ones of these folders. The system prompt stays as it is: those of a new
        one are sent when a file in it is touched."""
        trusted = [root.path for root in roots if root.trusted]
        for path in [path for path in self._of_roots if path not in trusted]:
            del self._of_roots[path]
            self._path_instructions.pop(path, None)
        for path in trusted:
            if path not in self._of_roots:
                found = self._load_root(path)
                guides = [InstructionFile(f"{path}/{ODIN_MD}", found.odin_md)] if found.odin_md else []
                rule = PathRule((*guides, *found.files), ("**",))
                self._of_roots[path] = replace(found, files=(), rules=(*([rule] if rule.files else ()), *found.rules))
                if found.warning:
                    self._on_warning(found.warning)

    def _load_root(self, path: str) -> Instructions:
        """Return the instructions of a folder besides the project, each with its whole path."""
        seen = self.instructions.places
        return load_instructions(path, path, open_for_reading, self._home, self._refuse_import, seen, f"{path}/")

    def _choose_base(self, base: str | None, info: ModelInfo) -> str | None:
        """Return the main text of the system prompt, None for the usual one. A planner adds its own instructions."""
        if base is not None or info.strategy == "tools" or not isinstance(self._prompt, SystemPrompt):
            return base
        return FILES_PROMPT if self._prompt.base is None else None

    def _get_prompt(self, base: str | None) -> SystemPromptSource:
        if base is None:
            return self._prompt
        return replace(self._prompt if isinstance(self._prompt, SystemPrompt) else SystemPrompt(), base=base)

    def forget(self) -> None:
        """Make all templates again: a tool was replaced."""
        self._templates.clear()

    def _build_skill_blocks(
        self, skills: "SessionSkills", agent: "AgentDefinition | None", offered: Iterable[Tool[Any]], info: ModelInfo
    ) -> tuple[str, ...]:
        """Return what the prompt says about skills. A system prompt of the caller's own stays as it is."""
        if not isinstance(self._prompt, SystemPrompt):
            return ()
        for problem in skills.find_named_problems(agent):
            self._on_warning(problem)
        has_tool = any(tool.name == "Skill" for tool in offered)
        return skills.build_blocks(agent, offered=has_tool, brief=0 < info.context <= SMALL_CONTEXT_WINDOW)

    def _build_own_blocks(self, agent: "AgentDefinition") -> tuple[str, ...]:
        """Return what the system prompt of this agent has beyond that of others: its prompt and its instructions."""
        prompt = f"# Role: {agent.name}\n{agent.prompt}" if agent.prompt else ""
        if not agent.instructions:
            return (prompt,) if prompt else ()
        own = load_agent_instructions(self._root, agent.instructions, self.instructions, open_for_reading)
        if own.warning:
            self._on_warning(own.warning)
        return tuple(filter(None, (own.files_text, prompt)))

    def _is_patching(self, info: ModelInfo) -> bool:
        """True if the model edits files with apply_patch."""
        wanted = info.edit_format if self._edit_format == "auto" else self._edit_format
        return wanted == "patch" and info.tools != "json"

    def mark_stale(self) -> None:
        """ODIN.md was written. The next prompt uses it; the running turn keeps the prompt it has sent."""
        self._is_stale = True

    def reload_if_stale(self) -> InstructionsChanged | None:
        """Reload ODIN.md if it was written; return the event to record."""
        if not self._is_stale:
            return None
        self._is_stale = False
        self.instructions = reload_odin_md(self.instructions, self._root, open_for_reading)
        if isinstance(self._prompt, SystemPrompt):
            self._prompt = replace(self._prompt, instructions=self.instructions.odin_md)
        self._templates.clear()
        return InstructionsChanged(self.instructions.text)


def _load_style(config: Config, env: Mapping[str, str], warn: Callable[[str], None]) -> OutputStyle | None:
    from odin.context.output_style import find_output_style

    own = (f"{config.root}/.odin/output-styles", f"{config.root}/.claude/output-styles") if config.trust.trusted else ()
    user = (str(get_config_dir(env) / "output-styles"), str(get_home_dir(env) / ".claude/output-styles"))
    folders = [
        *((folder, config.root) for folder in own),
        *((folder, "") for folder in user),
        *((f"{plugin.folder}/output-styles", plugin.folder) for plugin in config.plugins),
    ]
    return find_output_style(config.output_style, folders, warn)


def _offer_patches(offered: tuple[Tool[Any], ...], registry: Registry) -> tuple[Tool[Any], ...]:
    """Return the tools with apply_patch in place of those that it replaces, if it may be used."""
    patch = registry.get("apply_patch")
    if patch is None or registry.is_disabled(patch.name):
        return offered
    swapped = [patch if tool.name == "EditTool" else tool for tool in offered]
    is_offered = patch in swapped
    return tuple(tool for tool in swapped if not (is_offered and tool.name in ("MultiEditTool", "Delete")))
