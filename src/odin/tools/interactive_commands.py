"""Commands that would wait for a person (editors, pagers, `git rebase -i`), which are refused before they run.

That is a courtesy, not a guard: a program that slips through has no terminal and no input, and exits or times out.
"""

import re

from odin.core.lazy_pattern import compile_lazily
from odin.policy.commands.analysis import analyze_command

_SUSPECT_NAMES = (
    r"(?:^|[\s;&|(`/'\"])(?:vi|vim|nvim|view|vimdiff|nano|pico|emacs|micro|hx|less|more|most"
    r"|top|htop|watch|sudo|ssh|git|docker|podman|kubectl|gh)\b"
)

_EDITORS = {"vi", "vim", "nvim", "view", "vimdiff", "nano", "pico", "emacs", "micro", "hx"}
_BATCH_FLAGS = {"--batch", "-batch", "--headless", "-es", "-Es", "-e", "--version", "--help"}
_PAGERS = {"less", "more", "most"}
_SSH_WITH_VALUE = set("BbcDEeFIiJLlmOoPpQRSWw")
_COMMIT_MESSAGE = {"-m", "-F", "-C", "--message", "--file", "--no-edit", "--fixup", "--reuse-message", "--dry-run"}

_OPTIONS_WITH_VALUE = {
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "-n",
    "--namespace",
    "--kubeconfig",
}
"""Options of docker and kubectl before the subcommand that take a value."""

_EDITOR_SET = compile_lazily(r"(?:\b(?:GIT_EDITOR|GIT_SEQUENCE_EDITOR|EDITOR)|core\.editor)=")


def explain_interactive(command: str) -> str:
    """Return why a command would wait for a person and what to run instead, or "".

    Checks every command in the text, including those behind wrappers and inside `bash -c`.
    """
    if not re.search(_SUSPECT_NAMES, command):
        return ""
    parts = analyze_command(command).commands
    looked_up = {part.texts[2:] for part in parts if part.texts[:2] in (("command", "-v"), ("command", "-V"))}
    sets_editor = _EDITOR_SET.search(command) is not None
    for part in parts:
        if not part.words or part.texts in looked_up or (sets_editor and part.name == "git"):
            continue
        reason = _explain_program([part.name, *part.texts[1:]])
        if reason:
            return reason
    return ""


def _explain_program(words: list[str]) -> str:
    program, rest = words[0], words[1:]
    if program in _EDITORS and not _BATCH_FLAGS & set(rest):
        return f"{program} is an interactive editor. Use EditTool or WriteFile."
    if program in _PAGERS and "--version" not in rest:
        return f"{program} is a pager. Use Read, or cat, head and tail."
    if program in ("top", "htop", "watch") and not any(word.startswith("-b") for word in rest):
        return f"{program} never ends. Use ps, or top -b -n 1."
    if program == "sudo" and not _has_flag(rest, "nSA", ("--non-interactive", "--stdin", "--askpass", "--version")):
        return "sudo may ask for a password. Use sudo -n, which fails instead of asking."
    if program == "ssh" and _is_login(rest):
        return "This opens a login shell. Give ssh a command to run, with -o BatchMode=yes."
    if program == "git":
        return _explain_git(rest)
    if program in ("docker", "podman", "kubectl") and _wants_terminal(rest):
        return f"{program} -it needs a terminal. Leave out -t and -i."
    if program == "gh" and rest[:2] == ["auth", "login"] and "--with-token" not in rest:
        return "gh auth login is interactive. Ask the user to run it, or use --with-token."
    return ""


def _has_flag(words: list[str], letters: str, long: tuple[str, ...]) -> bool:
    for word in words:
        if not word.startswith("-"):
            return False
        if word in long or (not word.startswith("--") and set(word[1:]) & set(letters)):
            return True
    return False


def _is_login(rest: list[str]) -> bool:
    """True if ssh gets a host but no command."""
    plain = 0
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-") and not plain:
            if word in ("-V", "-G", "-Q", "-N", "-T", "-f") or word[1:2] in ("N", "f"):
                return False
            skip = len(word) == 2 and word[1] in _SSH_WITH_VALUE
        else:
            plain += 1
    return plain == 1


def _explain_git(rest: list[str]) -> str:
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    verb, flags = (rest[0] if rest else ""), rest[1:]
    short = {letter for word in flags if re.fullmatch(r"-[A-Za-z]+", word) for letter in word[1:]}
    if verb == "commit" and not any(_is_message(word) for word in flags):
        return "git commit without a message opens an editor. Use git commit -m MESSAGE (or --amend --no-edit)."
    if verb == "rebase" and ("i" in short or "--interactive" in flags):
        return "git rebase -i is interactive. Set GIT_SEQUENCE_EDITOR in the command, or rebase without -i."
    if verb in ("add", "checkout", "reset", "stash", "restore", "commit") and (
        "p" in short or {"--patch", "--interactive"} & set(flags) or (verb == "add" and "i" in short)
    ):
        return f"git {verb} -p is interactive. Name the files instead."
    return ""


def _is_message(word: str) -> bool:
    if word.startswith("--"):
        return word.partition("=")[0] in _COMMIT_MESSAGE
    return word[:2] in _COMMIT_MESSAGE or bool(re.match(r"-[aeinopqsvz]*[mFC]", word))


def _wants_terminal(rest: list[str]) -> bool:
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _OPTIONS_WITH_VALUE else rest[1:]
    if not rest or rest[0] not in ("run", "exec", "container", "attach", "start"):
        return False
    short = {letter for word in rest if re.fullmatch(r"-[a-z]+", word) for letter in word[1:]}
    return {"i", "t"} <= short or {"--interactive", "--tty"} <= set(rest)
