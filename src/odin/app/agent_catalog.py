"""Loads the agent definitions of a session or a folder: built-in, user's, the trusted project's, and `--agents`."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from odin.app.workspace import list_agent_folders, list_project_agent_folders
from odin.config import Config
from odin.config.layers import TRUST_HINT
from odin.context.agent_definition import AgentCatalog, AgentDefinition
from odin.policy.rules.rule import Rule
from odin.policy.rules.rule_file import RuleReader


def load_agents(
    config: Config, env: Mapping[str, str], given: str = "", known_tools: Collection[str] = ()
) -> AgentCatalog:
    """Return the catalog. Files are read only if one of the folders exists. `given` is the JSON of `--agents`."""
    folders = list_agent_folders(config, env)
    if not folders and not given:
        return AgentCatalog()
    from odin.context.agent_files import AgentFolder, load_agent_catalog

    found: dict[str, AgentFolder] = {}
    for folder in folders:
        is_project = folder in list_project_agent_folders(config.root)
        place = AgentFolder(folder, "project", config.root) if is_project else AgentFolder(folder, "user")
        found.setdefault(os.path.realpath(folder), place)
    return load_agent_catalog(found.values(), given=given, known_tools=known_tools, check_rules=find_rule_problems)


def list_project_files(root: str) -> list[str]:
    """Return the agent files of a project, relative to it. They are used only if the project is trusted."""
    return [
        str(path.relative_to(root))
        for folder in list_project_agent_folders(root)
        for path in sorted(Path(folder).glob("**/*.md"))
    ]


def describe_unused_files(config: Config) -> str:
    """Return that the agent files of an untrusted project are not used, or "" if there are none."""
    count = 0 if config.trust.trusted else len(list_project_files(config.root))
    if not count:
        return ""
    files = "The agent file" if count == 1 else f"The {count} agent files"
    return f"{files} of {config.root} cannot be used: this folder is not trusted. {TRUST_HINT}"


def find_rule_problems(rules: Any) -> list[tuple[str, str]]:
    return RuleReader("session", "").read(rules).problems


def rules_of(definition: AgentDefinition) -> list[Rule]:
    """Return the permission rules of an agent. Invalid entries were reported when its file was read."""
    return RuleReader("session", definition.path or definition.source).read(definition.rules or []).rules
