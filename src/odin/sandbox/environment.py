"""The environment commands run in: nothing in it waits for a person, and no secret is handed on unasked."""

import re
from collections.abc import Collection, Mapping

SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"
"""Where Odin's own helpers are found. What the user's PATH names may lie in the project, where commands write."""

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
"""Editors, pagers and prompts that would wait for ever end at once instead.

`GIT_EDITOR=true` accepts the message git has prepared, so `git rebase --continue` works and a commit without a message
still fails by itself; every other editor fails.
"""

_SECRET_NAMES = (
    r"(?:^|_)(?:API_?KEYS?|APIKEYS?|KEYS?|(?:ACCESS|SECRET|PRIVATE|SIGNING)_?KEY(?:_\w+)?|TOKENS?(?:_\d+|_FILE|_SECRET)?"
    r"|PAT|JWT|SECRETS?|SECRET_\w+|PASS|PASSWORDS?|PASSWORD_\w+|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|CREDS|COOKIES?|DSN"
    r"|CONNECTION_STRING|WEBHOOK(?:_URL)?|AUTH|KEYTAB|OTP|PIN)$"
    r"|^AWS_(?!REGION$|DEFAULT_REGION$|DEFAULT_OUTPUT$|PAGER$)|^AZURE_|^OP_SESSION_|^PGPASS|^NPM_CONFIG_.*AUTH|SSHPASS$"
    r"|PASSWORD$"
)
"""Names of variables that hold secrets."""

_FOLDER_VARIABLES = ("PWD", "OLDPWD")
"""Folders, whatever their names look like."""

_URL_WITH_PASSWORD = r"^[a-z][a-z0-9+.-]*://[^/?#\s:@]*:[^/?#\s@]+@"
"""An address with a password in it."""

_ODIN_VARIABLES = r"^ODIN_(?!COMMAND$)"
"""What Odin was told for itself. Its mark stays: it finds what a command leaves behind."""

_GIT_SETTINGS = {
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "diff.autoRefreshIndex": "false",
}
"""What keeps a repository from starting programs of its own choice while somebody looks at it."""


def build_command_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The environment of a command: nothing that prompts, and no secret the configuration does not name."""
    secret = re.compile(_SECRET_NAMES, re.IGNORECASE)
    address = re.compile(_URL_WITH_PASSWORD, re.IGNORECASE)
    own = re.compile(_ODIN_VARIABLES)
    keep = {*keep, *_FOLDER_VARIABLES}
    kept = {
        name: value
        for name, value in environ.items()
        if name in keep or not (secret.search(name) or own.search(name) or address.search(value))
    }
    return {**kept, **_NON_INTERACTIVE}


def build_git_settings(environ: Mapping[str, str], *, hooks: bool) -> dict[str, str]:
    """Settings for git that win over a repository's own, after those that are in the environment already.

    Without `hooks` the repository's are not run either: there, nothing is changed that they would be about.
    """
    settings = _GIT_SETTINGS if hooks else {**_GIT_SETTINGS, "core.hooksPath": "/dev/null"}
    given = environ.get("GIT_CONFIG_COUNT", "")
    count = int(given) if given.isdecimal() else 0
    found = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(count + len(settings))}
    for at, (key, value) in enumerate(settings.items(), count):
        found[f"GIT_CONFIG_KEY_{at}"] = key
        found[f"GIT_CONFIG_VALUE_{at}"] = value
    return found
