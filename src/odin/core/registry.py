"""The tools of one agent by name, including the names other agents use for them."""

from collections.abc import Callable, Iterable
from typing import Any

from odin.core.tool import Tool

ALIASES: dict[str, str] = {
    "LS": "list_dir list_directory ls dir ListDir list list_files",
    "Read": "FileRead ReadFile read_file read view View cat open_file NotebookRead",
    "Grep": "grep search grep_search search_files Search SearchText ripgrep",
    "Glob": "glob find_files FindFiles glob_search file_search",
    "WriteFile": "Write FileWrite write_file write create_file save_file",
    "EditTool": "Edit FileEdit edit_file edit str_replace replace StrReplace str_replace_editor StrReplaceFile",
    "MultiEditTool": "MultiEdit multi_edit multiedit",
    "Delete": "delete delete_file remove_file",
    "AppendFile": "append_file append",
    "ExecuteCommand": "Bash bash exec shell Shell run_shell_command execute_command run_command local_shell "
    "RunCommand Execute terminal",
    "Spawn": "spawn",
    "SpawnStatus": "BashOutput TaskOutput spawn_status",
    "SpawnStop": "KillShell KillBash TaskStop spawn_stop",
    "TodoWrite": "todo_write todowrite todos update_plan SetTodoList write_todos TodoUpdate",
    "AgentTool": "Task Agent agent task subagent SubAgent",
    "Delegate": "delegate",
    "WebFetch": "web_fetch fetch FetchURL fetch_url",
    "WebSearch": "web_search SearchWeb google_web_search",
    "ContextSummarizer": "summarize_context context_summarizer",
    "InitTool": "Init init",
    "SaveArtifact": "save_artifact",
    "ReadArtifact": "read_artifact",
    "Question": "AskUserQuestion ask_user question ask_user_question",
}
"""For each tool, the names other agents and their models use."""

_CANONICAL: dict[str, str] = {
    alias.casefold(): name for name, aliases in ALIASES.items() for alias in (name, *aliases.split())
}


def canonical_name_of(name: str) -> str:
    """Return Odin's name of a tool. An unknown name is returned unchanged."""
    return _CANONICAL.get(name.casefold(), name)


class Registry:
    """Which tools exist, which are offered to the model, and which run without approval.

    A disabled tool is not offered but can still be found by name, so a call to it is refused with a reason. `wanted`
    lists tools to offer that are not offered by default.
    """

    def __init__(
        self,
        tools: Iterable[Tool[Any]] = (),
        *,
        allowed: Iterable[str] = (),
        disabled: Iterable[str] = (),
        opted_in: Iterable[str] = (),
    ) -> None:
        self._tools: dict[str, Tool[Any]] = {}
        self._allowed = {canonical_name_of(name) for name in allowed}
        self._disabled = {canonical_name_of(name) for name in disabled}
        self._opted_in = {canonical_name_of(name) for name in opted_in}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool[Any]) -> None:
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[Any] | None:
        return self._tools.get(name) or self._tools.get(canonical_name_of(name))

    def list_names(self) -> tuple[str, ...]:
        """Return the registered tools in order of registration, which never changes."""
        return tuple(self._tools)

    def is_allowed(self, name: str) -> bool:
        return canonical_name_of(name) in self._allowed

    def is_disabled(self, name: str) -> bool:
        return canonical_name_of(name) in self._disabled

    def list_safe_tools(self) -> tuple[str, ...]:
        """Return the tools that change nothing."""
        return tuple(tool.name for tool in self._tools.values() if tool.side_effect in ("none", "read_only"))

    def list_offered(self, visible: Callable[[Tool[Any]], bool] = lambda tool: True) -> tuple[Tool[Any], ...]:
        """Return the tools described to the model."""
        return tuple(tool for tool in self._tools.values() if self._is_offered(tool) and visible(tool))

    def _is_offered(self, tool: Tool[Any]) -> bool:
        return not self.is_disabled(tool.name) and (tool.offered or tool.name in self._opted_in)

    def build_openai_definitions(self) -> list[dict[str, Any]]:
        """Return the offered tools in the OpenAI function format."""
        return [
            {
                "type": "function",
                "function": {"name": spec.name, "description": spec.description, "parameters": spec.schema},
            }
            for spec in (tool.build_spec() for tool in self.list_offered())
        ]
