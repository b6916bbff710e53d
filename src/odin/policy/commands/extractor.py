"""Finds every command that a text would run, including those that other programs are told to run."""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from odin.policy.commands.parser import examine_command
from odin.policy.commands.programs import (
    OPAQUE_BUILTINS,
    SHELLS,
    SSH_VALUED,
    TEXT_RUNNERS,
    WRAPPERS,
    can_change_programs,
    find_inputs,
    find_option_value,
    is_assignment,
    resolve_cd_target,
    skip_options,
    split_loose_words,
)
from odin.policy.commands.script_reader import read_script
from odin.policy.commands.syntax import (
    MAX_COMMAND_CHARS,
    CommandAnalysis,
    ExtractedCommand,
    Redirect,
    ShellFile,
    ShellScript,
    ShellWord,
    SimpleCommand,
    split_names,
)

_MAX_LAYERS = 12
_GIT_VALUED = split_names("-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env")
_SAFE_GIT_SETTINGS = split_names("init.defaultBranch user.name user.email core.quotePath color.ui advice.detachedHead")
_EVALUATING_BUILTINS = split_names("declare typeset local readonly export read let printf test [ unset getopts wait")
_DECLARING_BUILTINS = split_names("declare typeset local readonly")
_SUBSTITUTION_MARKS = re.compile(r"\[[^\]]*[$`]|\$\(|`")
_SCRIPT_DOUBT = "a shell runs a script that is not in the command"
_HERE_OPERATORS = split_names("<<< << <<-")


def extract_commands(command: str) -> CommandAnalysis:
    """Return every command that this text would run, as far as can be known without running it."""
    script, why = examine_command(command)
    extractor = CommandExtractor()
    extractor.add_script(script)
    reason = why or extractor.reason
    return CommandAnalysis(
        tuple(extractor.commands),
        not reason,
        tuple(extractor.redirects),
        None if why else script,
        reason,
        tuple(extractor.assigned),
        tuple(extractor.functions),
        tuple(extractor.assigned_words),
        tuple(extractor.unreadable_texts),
        (*((why,) if why else ()), *extractor.doubts),
        tuple(extractor.script_files),
    )


class CommandExtractor:
    """Collects commands and the commands inside them. `reason` says why some may be missing."""

    def __init__(self) -> None:
        self.commands: list[ExtractedCommand] = []
        self.redirects: list[Redirect] = []
        self.reason = ""
        self.doubts: list[str] = []
        self.script_files: list[ShellFile] = []
        self.assigned: list[tuple[str, str | None]] = []
        self.functions: list[str] = []
        self.assigned_words: list[tuple[str, ShellWord]] = []
        self.unreadable_texts: list[str] = []
        self._stdin_texts: tuple[str, ...] = ()
        self._has_given_stdin = False
        self._placeholder = ""
        self._is_open: bool = False
        self._layers = 0

    def note_doubt(self, reason: str, *, is_explained: bool = False) -> None:
        """Note why commands may be missing. `is_explained`: deny rules can still tell, so it is no doubt for them."""
        self.reason = self.reason or reason
        if not is_explained:
            self.doubts.append(reason)

    def add_script(self, script: ShellScript, *, inside: bool = False) -> None:
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.note_doubt("it is nested too deeply")
        else:
            self._add_commands(script, inside=inside)
        self._layers -= 1

    def _add_commands(self, script: ShellScript, *, inside: bool) -> None:
        for reason in script.doubts:
            self.note_doubt(reason)
        self.assigned += script.assigned
        self.functions += script.functions
        self.assigned_words += script.assigned_words
        stdin_folders: list[str | None] = []
        before = self._stdin_texts
        for simple, texts in zip(script.commands, find_inputs(script.commands), strict=True):
            self.redirects.extend(item for item in simple.redirects if _is_file_redirect(item))
            self._stdin_texts = texts or before
            self._has_given_stdin = any(_is_given_whole(item, script.bodies) for item in simple.redirects)
            if self._add_simple(simple, inside=inside):
                stdin_folders.append(simple.folder)
                for text in texts:
                    self._add_text(text, simple.folder)
        self._stdin_texts = before
        for folder in stdin_folders[:1]:
            for body in script.bodies:
                self._add_text(body, folder)

    def _add_simple(self, simple: SimpleCommand, *, inside: bool) -> bool:
        """Record one command and the commands it wraps. Return True if a shell reads its script from standard input."""
        words = simple.words
        while words and is_assignment(words[0]):
            words = words[1:]
        inside = inside or simple.nested or len(words) < len(simple.words)
        return self._add_words(words, simple.folder, inside=inside) if words else False

    def _add_words(self, words: Sequence[ShellWord], folder: str | None, *, inside: bool) -> bool:
        part = ExtractedCommand(
            tuple(words), inside, folder, self._stdin_texts, self._placeholder if inside else "", self._is_open
        )
        self.commands.append(part)
        if not words[0].literal:
            self.note_doubt(f"the name of a command is not literal: {words[0].text}", is_explained=True)
            return False
        name = part.name
        special = _SPECIAL_PROGRAMS.get(name)
        if special is not None:
            return special(self, words, folder)
        if name in SHELLS:
            return self._read_shell(words[1:], folder)
        if name in OPAQUE_BUILTINS:
            self.note_doubt(f"{name} changes what later commands do, or runs code that is not in the command")
        if name in WRAPPERS:
            return self._read_wrapped(name, words[1:], folder)
        if name in TEXT_RUNNERS:
            self._add_joined_words(skip_options(words[1:], TEXT_RUNNERS[name]), folder)
        elif name in _EVALUATING_BUILTINS:
            self._check_builtin(name, words[1:])
        return False

    # --- shells ---

    def _read_shell(self, args: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `sh -c TEXT`. Return True if the shell may read its script from standard input."""
        if [word.text for word in args] in (["--version"], ["--help"]):
            return False
        rest = list(args)
        has_text = False
        while rest and rest[0].text.startswith(("-", "+")):
            text = rest.pop(0).text
            if text in ("--", "-"):
                break
            has_text = has_text or text == "--command" or (not text.startswith("--") and "c" in text[1:])
            if re.fullmatch(r"[-+]\w*[oO]|--rcfile|--init-file", text) and rest:
                rest.pop(0)
        if has_text and rest:
            self._add_joined_words(rest[:1], folder)
            return False
        if rest and not has_text:
            self._add_script_file(rest[0], folder)
            return True
        self.note_doubt(_SCRIPT_DOUBT, is_explained=self._has_given_stdin)
        return True

    def _add_script_file(self, word: ShellWord, folder: str | None) -> None:
        """Note a file whose commands a shell runs."""
        self.note_doubt(_SCRIPT_DOUBT, is_explained=word.literal)
        self.script_files.append(ShellFile(word.text, folder, len(self.commands)))

    def _read_source(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `source FILE` and `. FILE`."""
        if len(words) > 1:
            self._add_script_file(words[1], folder)
        else:
            self.note_doubt(_SCRIPT_DOUBT)
        return False

    def _read_su(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `su` and `runuser`, which run a shell as another user."""
        login = any(re.fullmatch(r"-|--login|-\w*l\w*", word.text) for word in words[1:])
        text = find_option_value(words[1:], "c", "command")
        if text is not None:
            self._add_joined_words([text], "~" if login else folder)
            return False
        self.note_doubt(_SCRIPT_DOUBT)
        rest = [word for word in words[1:] if word.text == "--"]
        if words[0].text.endswith("runuser") and rest:
            return self._add_inner(words[list(words).index(rest[0]) + 1 :], folder)
        return True

    def _read_script_program(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `script`, which runs a command given as one text, or a shell."""
        text = find_option_value(words[1:], "c", "command")
        if text is None:
            self.note_doubt(_SCRIPT_DOUBT)
            return True
        self._add_joined_words([text], folder)
        return False

    def _add_joined_words(self, words: Sequence[ShellWord], folder: str | None) -> None:
        """Read words that form a script."""
        if not words:
            return
        if not all(word.literal for word in words):
            self.note_doubt("it runs text that is only known at run time")
        self._add_text(" ".join(word.text for word in words), folder)

    def _add_text(self, text: str, folder: str | None) -> None:
        if self._layers > _MAX_LAYERS or len(text) > MAX_COMMAND_CHARS:
            self.note_doubt("it is nested too deeply")
            self.unreadable_texts.append(text)
            return
        script, flaw = read_script(text, folder)
        if flaw:
            self.note_doubt(flaw)
            self.unreadable_texts.append(text)
        self.add_script(script, inside=True)

    def _read_keyword(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read a reserved word in place of a command name: the words after it may be a command."""
        self.note_doubt(f"{words[0].text!r} is a reserved word of the shell")
        rest = words[1:]
        opening = [index for index, word in enumerate(rest[:2]) if word.text == "{"]
        if opening:
            rest = rest[opening[0] + 1 :]
        return self._add_inner(rest, folder) if rest else False

    def _read_ssh(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `ssh`, which passes all words after the host to a shell on that host."""
        rest = skip_options(words[1:], SSH_VALUED)
        if len(rest) > 1:
            self._add_joined_words(skip_options(rest[1:], SSH_VALUED), None)
        self.note_doubt("it runs on another machine")
        return False

    def _read_windows_shell(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `cmd /c ...` and `powershell -Command ...`."""
        self.note_doubt(_SCRIPT_DOUBT)
        for index, word in enumerate(words[1:], 1):
            text = word.text.casefold()
            if re.fullmatch(r"/[ck]|-c(o(m(m(a(n(d)?)?)?)?)?)?", text) or " " in text:
                self._add_joined_words(words[index if " " in text else index + 1 :], folder)
                break
        return False

    def _read_trap(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        self._add_joined_words(skip_options(words[1:], "")[:1], folder)
        return False

    # --- wrappers ---

    def _read_wrapped(self, name: str, args: Sequence[ShellWord], folder: str | None) -> bool:
        wrapper = WRAPPERS[name]
        rest = list(skip_options(args, wrapper.short_valued, wrapper.long_valued))
        while rest and is_assignment(rest[0]):
            rest = list(skip_options(rest[1:], wrapper.short_valued, wrapper.long_valued))
        rest = rest[wrapper.operands :]
        own = args[: len(args) - len(rest)]
        if name == "xargs" and rest:
            rest += [word for text in self._stdin_texts for word in split_loose_words(text)]
        if wrapper.folder_option and own:
            into = find_option_value(own, wrapper.folder_option, "chdir")
            folder = resolve_cd_target(folder, into) if into is not None else folder
        if name == "xargs" and rest:
            replaced = find_option_value(own, "I", "replace")
            return self._add_fed(rest, folder, placeholder=replaced.text if replaced else "", is_open=replaced is None)
        return self._add_inner(rest, folder) if rest else False

    def _add_fed(self, words: Sequence[ShellWord], folder: str | None, *, placeholder: str, is_open: bool) -> bool:
        """Record a command that gets words at run time, in place of a placeholder or after its own."""
        old_placeholder, was_open = self._placeholder, self._is_open
        self._placeholder = placeholder or old_placeholder
        self._is_open = is_open or was_open
        reads_stdin = self._add_inner(words, folder)
        self._placeholder, self._is_open = old_placeholder, was_open
        return reads_stdin

    def _add_inner(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.note_doubt("it is nested too deeply")
            reads_stdin = False
        else:
            reads_stdin = self._add_words(words, folder, inside=True)
        self._layers -= 1
        return reads_stdin

    def _read_env(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `env`, which sets variables and, with -S, splits a text into a command."""
        args = words[1:]
        for index, word in enumerate(args):
            if re.match(r"--s|-[a-zA-Z0]*S", word.text):
                joined = re.sub(r"^(--s[a-z-]*=?|-[a-zA-Z0]*?S)", "", word.text)
                text = ShellWord(joined, word.expands, word.glob) if joined else (*args[index + 1 :], ShellWord(""))[0]
                return self._read_env_split(text, args[index + (1 if joined else 2) :], folder)
            if not word.text.startswith("-") and not is_assignment(word):
                break
        for word in args:
            name, equals, value = word.text.partition("=")
            if equals and can_change_programs(name, value):
                self.note_doubt(f"it sets {name}, which can change what other programs do")
        return self._read_wrapped("env", args, folder)

    def _read_env_split(self, text: ShellWord, rest: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `env -S TEXT`: the words of the text replace it among the arguments."""
        script, flaw = read_script(text.text, folder)
        if flaw or not text.literal or len(script.commands) != 1 or script.commands[0].redirects:
            self.note_doubt("the text given to env -S cannot be parsed reliably")
            self._add_text(text.text, folder)
        words = [word for simple in script.commands[:1] for word in simple.words]
        if any(re.match(r"--s|-[a-zA-Z0]*S", word.text) for word in words):
            self.note_doubt("the text given to env -S cannot be parsed reliably")
        return self._read_wrapped("env", [*words, *rest], folder)

    def _read_flock(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        text = find_option_value(words[1:], "c", "command")
        if text is not None:
            self._add_joined_words([text], folder)
            return False
        return self._read_wrapped("flock", words[1:], folder)

    def _read_parallel(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `parallel COMMAND ::: ARGUMENTS`."""
        self.note_doubt("parallel builds the commands it runs at run time")
        rest = list(skip_options(words[1:], WRAPPERS["parallel"].short_valued, WRAPPERS["parallel"].long_valued))
        cut = next((index for index, word in enumerate(rest) if word.text.startswith(":::")), len(rest))
        if len(rest[:cut]) == 1 and rest[0].literal:
            self._add_joined_words(rest[:1], folder)
        if rest[:cut]:
            extra = [word for word in rest[cut + 1 :] if not word.text.startswith(":::")]
            self._add_inner([*rest[:cut], *extra], folder)
        return False

    def _read_find(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        reads_stdin = False
        placeholder = "" if _has_path_starts(words[1:]) else "{}"
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                rest = list(words[index + 1 :])
                ends = [n for n, item in enumerate(rest) if item.text in (";", "+")]
                inner = rest[: ends[0]] if ends else rest
                if inner:
                    reads_stdin |= self._add_fed(inner, folder, placeholder=placeholder, is_open=False)
        return reads_stdin

    def _read_git(self, words: Sequence[ShellWord], folder: str | None) -> bool:
        """Read `git`. A setting on the command line is a doubt, because settings can name programs to run."""
        args = words[1:]
        index = 0
        while index < len(args) and args[index].text.startswith("-"):
            text = args[index].text
            if text == "-c" and index + 1 < len(args) and args[index + 1].text.split("=")[0] not in _SAFE_GIT_SETTINGS:
                self._read_git_alias(args[index + 1], folder)
            if text.startswith(("--exec-path=", "--config-env")):
                self.note_doubt("a git option may run other programs")
            index += 2 if text in _GIT_VALUED else 1
        verb = args[index].text if index < len(args) else ""
        after = args[index + 1 :]
        if verb == "submodule" and any(word.text == "foreach" for word in after):
            start = next(n for n, word in enumerate(after) if word.text == "foreach")
            self._add_joined_words(skip_options(after[start + 1 :], ""), None)
        exec_text = find_option_value(after, "x", "exec") if verb == "rebase" else None
        if exec_text is not None:
            self._add_joined_words([exec_text], folder)
        if verb == "bisect" and after and after[0].text == "run":
            return self._add_inner(after[1:], folder) if len(after) > 1 else False
        if verb in ("filter-branch", "difftool", "mergetool"):
            self.note_doubt(f"git {verb} runs other programs")
        return False

    def _read_git_alias(self, word: ShellWord, folder: str | None) -> None:
        self.note_doubt("a git setting may run other programs")
        value = word.text.partition("=")[2]
        if value.startswith("!"):
            self._add_text(value[1:], folder)

    # --- builtins ---

    def _check_builtin(self, name: str, args: Sequence[ShellWord]) -> None:
        """Note a doubt for builtins that treat a word as `name[index]` and evaluate the index."""
        texts = [word.text for word in args]
        if name == "let" and any(re.search(r"[A-Za-z_$`\[]", text.partition("=")[2] or text) for text in texts):
            self.note_doubt("arithmetic may run code from a variable")
        elif name == "printf" and any(text.startswith("-v") for text in texts[:1]):
            self.note_doubt("printf -v may evaluate code in its words")
        elif name in _DECLARING_BUILTINS and any(re.match(r"[-+]\w*[in]", text) for text in texts):
            self.note_doubt(f"{name} may evaluate code in its words")
        elif name in ("test", "[") and "-v" in texts and any("[" in text for text in texts):
            self.note_doubt("test -v may evaluate code in its words")
        elif name not in ("printf", "export") and any(
            _SUBSTITUTION_MARKS.search(word.text) for word in args if not word.expands
        ):
            self.note_doubt(f"{name} may evaluate code in its words")


def _has_path_starts(words: Sequence[ShellWord]) -> bool:
    """True if everything that `find` finds has a slash or is `.`, so that no program takes it for a subcommand."""
    starts = list(takewhile(lambda word: not word.text.startswith(("-", "(", "!")), words))
    return all(word.literal and (word.text == "." or "/" in word.text) for word in starts)


def _is_given_whole(redirect: Redirect, bodies: Sequence[str]) -> bool:
    """True if a redirection gives a command its whole standard input as written in the text."""
    if redirect.op == "<<<":
        return redirect.target.literal
    plain = redirect.target.quoted or not any("\\" in body for body in bodies)
    return redirect.op in ("<<", "<<-") and plain


def _is_file_redirect(redirect: Redirect) -> bool:
    """True if a redirection opens a file: not the null device, another stream, or a here-document."""
    target = redirect.target
    if redirect.op in _HERE_OPERATORS:
        return False
    if not target.literal:
        return True
    if redirect.op in (">&", "<&") and re.fullmatch(r"\d+-?|-", target.text):
        return False
    return target.text != "/dev/null"


_SPECIAL_PROGRAMS: dict[str, Callable[[CommandExtractor, Sequence[ShellWord], str | None], bool]] = {
    **dict.fromkeys(
        ("!", "{", "coproc", "do", "then", "else", "if", "while", "until", "elif"), CommandExtractor._read_keyword
    ),
    "su": CommandExtractor._read_su,
    "runuser": CommandExtractor._read_su,
    "script": CommandExtractor._read_script_program,
    "ssh": CommandExtractor._read_ssh,
    **dict.fromkeys(("cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh"), CommandExtractor._read_windows_shell),
    **dict.fromkeys(("source", "."), CommandExtractor._read_source),
    "trap": CommandExtractor._read_trap,
    "env": CommandExtractor._read_env,
    "flock": CommandExtractor._read_flock,
    "parallel": CommandExtractor._read_parallel,
    "find": CommandExtractor._read_find,
    "git": CommandExtractor._read_git,
}
