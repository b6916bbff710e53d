"""The tools of one agent by name, and every other name they are known by."""

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
"""Odin's name for each tool, and the names other agents and their models use for the same thing."""

_CANONICAL: dict[str, str] = {
    alias.casefold(): name for name, aliases in ALIASES.items() for alias in (name, *aliases.split())
}


def canonical_name_of(name: str) -> str:
    """Odin's name for a tool, whatever it was called; an unknown name comes back as it was."""
    return _CANONICAL.get(name.casefold(), name)


class Registry:
    """Which tools exist, which are offered, and which run without a question.

    A disabled tool is not offered to the model but is still found by name, so that a call to it can be refused with
    the reason instead of being unknown. `wanted` are tools to offer of which models are not told unasked.
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
        """Every registered tool, in the order of registration, which never changes."""
        return tuple(self._tools)

    def is_allowed(self, name: str) -> bool:
        return canonical_name_of(name) in self._allowed

    def is_disabled(self, name: str) -> bool:
        return canonical_name_of(name) in self._disabled

    def list_safe_tools(self) -> tuple[str, ...]:
        """The tools that change nothing: they look, or only talk to the person."""
        return tuple(tool.name for tool in self._tools.values() if tool.side_effect in ("none", "read_only"))

    def list_offered(self, visible: Callable[[Tool[Any]], bool] = lambda tool: True) -> tuple[Tool[Any], ...]:
        """The tools the model is told about."""
        return tuple(tool for tool in self._tools.values() if self._is_offered(tool) and visible(tool))

    def _is_offered(self, tool: Tool[Any]) -> bool:
        return not self.is_disabled(tool.name) and (tool.offered or tool.name in self._opted_in)

    def build_openai_definitions(self) -> list[dict[str, Any]]:
        """The offered tools in the OpenAI function format."""
        return [
            {
                "type": "function",
                "function": {"name": spec.name, "description": spec.description, "parameters": spec.schema},
            }
            for spec in (tool.build_spec() for tool in self.list_offered())
        ]
