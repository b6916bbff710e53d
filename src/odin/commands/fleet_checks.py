"""What is checked before the tasks of a fleet start."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from odin.app.roles import load_agents
from odin.app.sandbox import LazySandbox
from odin.config import Config, load
from odin.config.auth import read_auth_file
from odin.config.paths import make_environment
from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.private_folders import make_private_folder
from odin.fleet.task import FleetTask, is_local
from odin.models.catalog import add_stored_keys, resolve_endpoint
from odin.models.connector import ModelConnector


def find_unknown(tasks: Sequence[FleetTask]) -> Iterator[str]:
    """Yield a sentence for each model, pool and role that a task names and nobody knows, with its first task."""
    seen: set[tuple[str, ...]] = set()
    configs: dict[str, Config] = {}
    for task in tasks:
        if task.trust and task.repository and not is_local(task.repository):
            continue  # its settings are not here yet
        # The settings of a project count only if its task is trusted.
        folder = task.repository if task.trust and Path(task.repository).is_dir() else "/"
        names = (folder, task.model, task.pool, task.role)
        if names in seen or not any(names[1:]):
            continue
        seen.add(names)
        try:
            config = configs.get(folder) or load(folder, os.environ, trust=task.trust)
            configs[folder] = config
            connector = ModelConnector(config, os.environ, eager=False)
            if task.pool:
                connector.pools.list_usable(task.pool)
            if task.model:
                connector.check_ref(task.model)
                provider = connector.normalize(task.model).partition("/")[0]
                keyed = add_stored_keys(config.providers, read_auth_file(os.environ))
                with suppress(ConfigError):  # it needs no address: a package or Odin itself provides it
                    resolve_endpoint(provider, keyed, os.environ)
            if task.role:
                load_agents(config, make_environment(cwd=folder)).find_role(task.role)
        except OdinError as error:
            yield f"{task.id}: {error.describe()}"


def refuse_without_sandbox(folder: Path) -> None:
    """Raise UsageError if no sandbox works for tasks below this folder."""
    make_private_folder(folder)
    sandbox = LazySandbox(load(str(folder), os.environ), make_environment(cwd=str(folder)))
    try:
        if sandbox.find_level() == "none":
            raise UsageError(
                f"Tasks run unattended, and no sandbox works here: {sandbox.explain_level()}",
                "`odin doctor` helps. Where the machine itself is the sandbox, --unsandboxed runs tasks without one.",
            )
    finally:
        sandbox.close()
