"""Runs what slash commands write as `` !`command` ``, for its output.

Those of a slash command that is not trusted are not run at all. In a trusted folder the others run, elsewhere only what
is known to read only, and what a rule or their `allowed-tools` allow: in the sandbox, read-only, and not without one.
The arguments are parameters of the shell, so that none of them can become a command.
"""

import asyncio
import shlex
from typing import TYPE_CHECKING

from odin.app.session_parts import Permissions
from odin.context.arguments import find_shell_commands, split_arguments
from odin.context.library import CommandText
from odin.core.call_events import SkillUsed
from odin.core.profile import ProcessProfile
from odin.core.text import to_valid_unicode
from odin.core.tool import Target
from odin.policy.decision import READ_ONLY_RULE
from odin.sandbox.process import describe_exit

if TYPE_CHECKING:
    from odin.policy.policy import Policy

MAX_SECONDS = 30.0
MAX_CHARS = 20_000
MAX_COMMANDS = 10


async def run_shell_commands(
    trusted: bool, permissions: Permissions, text: CommandText, arguments: str
) -> tuple[dict[str, str], str]:
    """Return the output of the commands in a trusted text that may run, and why others may not, or "".

    `trusted`: the folder is.
    """
    used = SkillUsed(text.command.name, text.path, rules=text.allowed_tools)
    policy, why = permissions.policy.get().with_skills((used,)), ""
    allowed: list[str] = []
    commands = find_shell_commands(text.body)
    if commands:
        await policy.examine()
    for command in commands:
        decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
        if decision.action == "deny":
            why = decision.reason
        elif not trusted and (decision.action == "ask" or decision.hides_secrets) and decision.rule != READ_ONLY_RULE:
            why = "this folder is not trusted. Trust it, or add the command to `allowed-tools` in the file."
        elif len(allowed) == MAX_COMMANDS:
            why = f"a slash command may run {MAX_COMMANDS} commands."
        else:
            allowed.append(command)
    try:
        outputs = await asyncio.gather(*(_run(permissions, policy, command, arguments) for command in allowed))
    except OSError as error:
        return {}, str(error)
    return dict(zip(allowed, outputs, strict=True)), why


async def _run(permissions: Permissions, policy: "Policy", command: str, arguments: str) -> str:
    words = " ".join(map(shlex.quote, split_arguments(arguments)))
    script = f"set -- {words}\nARGUMENTS={shlex.quote(arguments)}\n{command}"
    hidden = tuple(path for path in permissions.sandbox.find_secret_files() if not policy.may_read_secret(path))
    profile = ProcessProfile("read", confined=True, hidden=hidden)
    done = await permissions.runner.run(script, cwd=policy.cwd, timeout=MAX_SECONDS, limit=MAX_CHARS, profile=profile)
    text = to_valid_unicode(permissions.redact(done.output).text).strip("\n")
    if done.timed_out:
        return f"{text}\n(stopped after {MAX_SECONDS:g} s)".lstrip("\n")
    return f"{text}\n({describe_exit(done.code)})".lstrip("\n") if done.code else text
