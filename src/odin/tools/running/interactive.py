"""Commands that would wait for a person, recognised before they run.

This is a courtesy, not a guard: a program that slips through finds no terminal and no input, and ends or times out.
"""

import re

_SUSPECT = (
    r"(?:^|[\s;&|(`/])(?:vi|vim|nvim|nano|pico|emacs|micro|hx|less|more|most"
    r"|top|htop|watch|sudo|ssh|git|docker|podman|gh)\b"
)

_EDITORS = {"vi", "vim", "nvim", "nano", "pico", "emacs", "micro", "hx"}
_BATCH_FLAGS = {"--batch", "-batch", "--headless", "-es", "-Es", "-e", "--version", "--help"}
_PAGERS = {"less", "more", "most"}
_WRAPPERS = {"env", "nohup", "time", "command", "exec", "nice", "setsid", "then", "do", "else", "!", "{", "("}
_SSH_WITH_VALUE = set("BbcDEeFIiJLlmOoPpQRSWw")
_COMMIT_MESSAGE = {"-m", "-F", "-C", "--message", "--file", "--no-edit", "--fixup", "--reuse-message", "--dry-run"}


def refusal(command: str) -> str:
    """Why this command would wait for ever and what to run instead; "" when nothing is known against it."""
    if not re.search(_SUSPECT, command):
        return ""
    for words in _simple_commands(command):
        reason = _judge(words)
        if reason:
            return reason
    return ""


def _simple_commands(command: str) -> list[list[str]]:
    """The words of each command in a line. A line this cannot read is let through."""
    import shlex

    lexer = shlex.shlex(_without_here_documents(command).replace("\n", " ; "), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word and not word.strip(";&|()"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return [_unwrapped(words) for words in found]


def _without_here_documents(command: str) -> str:
    """Only the lines that are commands: what a program is given to read may speak of editors."""
    lines: list[str] = []
    ends: list[str] = []
    for line in command.split("\n"):
        if not ends:
            lines.append(line)
            ends = re.findall(r"""(?<!<)<<-?[ \t]*\\?["']?([A-Za-z_]\w*)""", line)
        elif line.lstrip("\t") == ends[0]:
            ends.pop(0)
    return "\n".join(lines)


def _unwrapped(words: list[str]) -> list[str]:
    """Without assignments and words that only introduce the real command."""
    for at, word in enumerate(words):
        if word not in _WRAPPERS and not re.match(r"[A-Za-z_]\w*=", word):
            return [word.rpartition("/")[2], *words[at + 1 :]]
        if word.startswith(("GIT_EDITOR=", "GIT_SEQUENCE_EDITOR=", "EDITOR=")):
            return []
    return []


def _judge(words: list[str]) -> str:
    if not words:
        return ""
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
        return _git(rest)
    if program in ("docker", "podman") and _wants_terminal(rest):
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
    """Whether ssh gets a host and nothing to do there."""
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


def _git(rest: list[str]) -> str:
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
    if not rest or rest[0] not in ("run", "exec", "container", "attach", "start"):
        return False
    short = {letter for word in rest if re.fullmatch(r"-[a-z]+", word) for letter in word[1:]}
    return {"i", "t"} <= short or {"--interactive", "--tty"} <= set(rest)
