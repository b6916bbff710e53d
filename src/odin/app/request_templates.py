"""The request template of each mode: the model in use with its system prompt and tools."""

from msgspec.structs import replace

from odin.config import Config, Options
from odin.context.instructions import load_instructions, reload_odin_md
from odin.context.prompt import SystemPrompt, SystemPromptSource
from odin.core.event import InstructionsChanged
from odin.core.event_values import Mode
from odin.core.tool import Registry
from odin.engine.turn import RequestTemplate
from odin.models.selection import ModelSelector
from odin.policy.modes import spec_of
from odin.policy.paths import open_for_reading

SMALL_CONTEXT_WINDOW = 16_384
"""Models with a context window up to this size get the short system prompt."""

MEDIUM_CONTEXT_WINDOW = 32_768
"""Models with a context window up to this size get short tool descriptions, and small ones fewer tools."""


class RequestTemplates:
    """Makes templates from the instruction files and the model in use. `system_prompt` replaces Odin's own."""

    def __init__(
        self,
        config: Config,
        options: Options,
        cwd: str,
        models: ModelSelector,
        system_prompt: SystemPromptSource | None,
    ) -> None:
        self.instructions = load_instructions(config.root, cwd, open_for_reading)
        self._is_stale = False
        self._root = config.root
        self._models = models
        self._prompt = system_prompt or SystemPrompt(
            header=config.system_header,
            base=options.system_prompt,
            append=options.append_system_prompt,
            instructions=self.instructions.odin_md,
            other_instructions=self.instructions.files_text,
            allowed=config.allowed_commands,
            forbidden=config.forbidden_commands,
        )
        self._templates: dict[tuple[str, Mode, tuple[str, ...]], RequestTemplate] = {}

    def get(self, mode: Mode, registry: Registry) -> RequestTemplate:
        """Return the template of a mode. It is made once, so that the cached prefix of requests never changes."""
        key = (self._models.ref, mode, registry.list_names())
        if key not in self._templates:
            info = self._models.info
            offered = registry.list_offered(spec_of(mode).allows_tool)
            specs = tuple(tool.build_spec() for tool in offered)
            if 0 < info.context <= MEDIUM_CONTEXT_WINDOW:
                from odin.providers.tool_adapters import fit_tools_to_window

                specs = fit_tools_to_window(specs, tuple(tool.build_spec(brief=True) for tool in offered), info.context)
            system = self._prompt.build_blocks(mode, brief=0 < info.context <= SMALL_CONTEXT_WINDOW)
            self._templates[key] = RequestTemplate(self._models.provider, info, system, specs)
        return self._templates[key]

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
