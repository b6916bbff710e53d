"""The environment of commands: programs do not prompt, and secrets are passed on only if the configuration says so."""

import re
from collections.abc import Collection, Mapping

SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"
"""PATH for Odin's own helper programs. The user's PATH may contain project folders, which commands can write to."""

_NON_INTERACTIVE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "false",
    "VISUAL": "false",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "npm_config_yes": "true",
    "CI": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Makes editors, pagers and prompts exit at once instead of waiting forever.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails; every other editor fails.
"""

_SECRET_NAMES = (
    r"(?:^|_)(?:API_?KEYS?|APIKEYS?|KEYS?|(?:ACCESS|SECRET|PRIVATE|SIGNING)_?KEY(?:_\w+)?|TOKENS?(?:_\d+|_FILE|_SECRET)?"
    r"|PAT|JWT|SECRETS?|SECRET_\w+|PASS|PASSWORDS?|PASSWORD_\w+|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|CREDS|COOKIES?|DSN"
    r"|CONNECTION_STRING|WEBHOOK(?:_URL)?|AUTH|KEYTAB|OTP|PIN)$"
    r"|^AWS_(?!REGION$|DEFAULT_REGION$|DEFAULT_OUTPUT$|PAGER$)|^AZURE_|^OP_SESSION_|^PGPASS|^NPM_CONFIG_.*AUTH|SSHPASS$"
    r"|PASSWORD$"
)
"""Matches names of variables that hold secrets."""

_FOLDER_VARIABLES = ("PWD", "OLDPWD")
"""Variables that look like passwords by name but hold folders."""

_URL_WITH_PASSWORD = r"^[a-z][a-z0-9+.-]*://[^/?#\s:@]*:[^/?#\s@]+@"
"""Matches a URL that contains a password."""

_ODIN_VARIABLES = r"^ODIN_(?!COMMAND$)"
"""Matches variables meant for Odin itself, except the mark that finds processes a command left behind."""

_GIT_SETTINGS = {
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "diff.autoRefreshIndex": "false",
}
"""Git settings that keep a repository's own configuration from starting programs during read-only commands."""


def build_command_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for commands: non-interactive, and without secrets except the names in `keep`."""
    secret = re.compile(_SECRET_NAMES, re.IGNORECASE)
    url_with_password = re.compile(_URL_WITH_PASSWORD, re.IGNORECASE)
    odin_variable = re.compile(_ODIN_VARIABLES)
    keep = {*keep, *_FOLDER_VARIABLES}
    passed = {
        name: value
        for name, value in environ.items()
        if name in keep or not (secret.search(name) or odin_variable.search(name) or url_with_password.search(value))
    }
    return {**passed, **_NON_INTERACTIVE}


def build_git_settings(environ: Mapping[str, str], *, hooks: bool) -> dict[str, str]:
    """Return variables with git settings that override a repository's own, appended to those in `environ`.

    `hooks=False` also disables the repository's hooks, for commands that only read.
    """
    settings = _GIT_SETTINGS if hooks else {**_GIT_SETTINGS, "core.hooksPath": "/dev/null"}
    existing = environ.get("GIT_CONFIG_COUNT", "")
    count = int(existing) if existing.isdecimal() else 0
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(count + len(settings))}
    for at, (key, value) in enumerate(settings.items(), count):
        variables[f"GIT_CONFIG_KEY_{at}"] = key
        variables[f"GIT_CONFIG_VALUE_{at}"] = value
    return variables
