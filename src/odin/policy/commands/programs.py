"""Knowledge about programs: wrappers, the target of `cd`, the literal input of a pipe, and escape options.

Escape options make a command write a file or run another program: `go vet -vettool=./x` runs x. A prefix rule such as
`Bash(go vet:*)` never covers them. Nor does `Bash(npm:*)` cover `npm exec x`, whose words name what runs.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from odin.policy.commands.syntax import ShellWord, SimpleCommand, split_names

SHELLS = split_names("sh bash dash zsh ksh mksh ash fish csh tcsh rbash rksh yash osh")

INTERPRETERS = re.compile(
    r"(?:python|pypy|ipython|perl|ruby|jruby|irb|node|nodejs|php|lua|luajit|[gmn]?awk|deno|bun|tclsh|wish|Rscript|julia"
    r"|emacs|groovy|scala|elixir|ghc|ghci|ocaml|guile|octave|gnuplot|osascript|expect|tsx|ts-node|gdb|lldb|m4|dc|r?ed|ex|n?vim?|view)"
    r"[\d.]*",
    re.IGNORECASE,
)
"""Programs that run code from their arguments or their standard input; editors run the commands in it."""

GIT_READERS = split_names("show diff log cat-file grep blame annotate archive apply hash-object stash whatchanged add")
GIT_COMMANDS = GIT_READERS | split_names(
    "am bisect branch bundle check-attr check-ignore checkout cherry cherry-pick clean clone commit commit-tree "
    "config count-objects describe diff-files diff-index diff-tree difftool fetch filter-branch for-each-ref "
    "format-patch gc fsck help init ls-files ls-remote ls-tree maintenance merge merge-base merge-file mergetool "
    "mktree mv name-rev notes pack-refs prune pull push range-diff read-tree rebase reflog remote repack replace "
    "request-pull rerere reset restore rev-list rev-parse revert rm send-pack shortlog show-branch show-ref "
    "sparse-checkout status tag submodule switch symbolic-ref update-index update-ref var verify-commit verify-tag "
    "version worktree write-tree"
)
"""Commands of git itself: no alias can replace them."""

OPAQUE_BUILTINS = split_names("alias enable hash complete compgen bind mapfile readarray fc coproc")
"""Builtins that change what later commands mean, or run text that is not in the command line."""


class Wrapper(Struct, frozen=True):
    """The options of a wrapper that take a value, and the number of operands before the command.

    `folder_option` is the short option that changes the folder.
    """

    short_valued: str = ""
    long_valued: str = ""
    operands: int = 0
    folder_option: str = ""


WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper("ugpCrtThDRUacA", "user group prompt close-from role type host chdir chroot other-user", 0, "D"),
    "doas": Wrapper("uCa"),
    "pkexec": Wrapper("", "user"),
    "run0": Wrapper("ug", "user group chdir unit property setenv"),
    "env": Wrapper("uCa", "unset chdir argv0", 0, "C"),
    "nice": Wrapper("n", "adjustment"),
    "ionice": Wrapper("cnpPu", "class classdata pid"),
    "chrt": Wrapper("TPD", "", 1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper("a"),
    "time": Wrapper("fo", "format output"),
    "stdbuf": Wrapper("ioe", "input output error"),
    "unbuffer": Wrapper(),
    "timeout": Wrapper("ks", "kill-after signal", 1),
    "gtimeout": Wrapper("ks", "kill-after signal", 1),
    "xargs": Wrapper(
        "adEeIiLlnPs", "arg-file delimiter replace max-lines max-args max-procs max-chars process-slot-var"
    ),
    "parallel": Wrapper("jNnLIaPS", "jobs max-args arg-file replace sshlogin"),
    "flock": Wrapper("wE", "timeout wait conflict-exit-code", 1),
    "chroot": Wrapper("", "userspec groups", 1),
    "taskset": Wrapper("", "", 1),
    "numactl": Wrapper("iNmCpl", "interleave cpunodebind membind physcpubind preferred"),
    "strace": Wrapper("abeEIoOpPsSuUX", "output attach trace"),
    "ltrace": Wrapper("aAeDFlnopsuwx", "output"),
    "gdb": Wrapper(),
    "valgrind": Wrapper(),
    "perf": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "unshare": Wrapper("SGRw", "setuid setgid root wd"),
    "nsenter": Wrapper("tSGrw", "target setuid setgid root wd"),
    "setpriv": Wrapper("", "reuid regid groups inh-caps ambient-caps bounding-set securebits"),
    "prlimit": Wrapper("p", "pid"),
    "systemd-run": Wrapper("pEut", "property setenv unit description slice uid gid working-directory"),
    "systemd-inhibit": Wrapper("", "what who why mode"),
    "dbus-run-session": Wrapper("", "config-file dbus-daemon"),
    "caffeinate": Wrapper("tw"),
    "proot": Wrapper("rbwq"),
    "fakeroot": Wrapper("lsib"),
    "firejail": Wrapper(),
    "bwrap": Wrapper("", "bind ro-bind dev-bind chdir setenv unsetenv uid gid"),
    "xvfb-run": Wrapper("ens", "server-num server-args error-file auth-file"),
    "hyperfine": Wrapper("wrmMLPS", "warmup runs prepare setup"),
    "entr": Wrapper(),
    "rlwrap": Wrapper(),
    "script": Wrapper("EIOTBo", "echo log-in log-out log-io log-timing output-limit"),
    "coproc": Wrapper(),
    "su": Wrapper("sgGw", "shell group supp-group whitelist-environment"),
    "runuser": Wrapper("sgGuw", "shell group user"),
    "doit": Wrapper(),
    **dict.fromkeys(
        split_names(
            "chronic ts proxychains proxychains4 torsocks tsocks dbus-launch catchsegv linux32 linux64 eatmydata "
            "dumb-init tini coreutils winpty softlimit"
        ),
        Wrapper(),
    ),
    **dict.fromkeys(split_names("faketime setarch gosu su-exec pidproxy"), Wrapper("", "", 1)),
}

TEXT_RUNNERS = {"eval": "", "watch": "nd"}
"""Programs that join their words into one text for a shell, with their short options that take a value."""

SSH_VALUED = "BbcDEeFIiJLlmOoPpQRSWw"

_LOOKUP_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH_\w+|BASHOPTS|SHELLOPTS|PROMPT_COMMAND|PS[0-4]|LD_\w+|DYLD_\w+|HOME|\w*PAGER|\w*EDITOR|VISUAL"
    r"|LESSOPEN|LESSCLOSE|GIT_(?:EXTERNAL_DIFF|SSH|SSH_COMMAND|CONFIG\w*|EXEC_PATH|ASKPASS|PROXY_COMMAND|DIR|TEMPLATE_DIR)"
)
"""Variables that decide which programs other programs run."""

_SAFE_VALUES = ("", "true", ":", "cat", "less", "more", "false")

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")


def is_assignment(word: ShellWord) -> bool:
    return "=" in word.text and _ASSIGNMENT.match(word.text) is not None


def can_change_programs(name: str, value: str | None) -> bool:
    """True if assigning this value to this variable may make other programs run than those named."""
    if _LOOKUP_VARIABLES.fullmatch(name) is None:
        return False
    return name.startswith(("PATH", "LD_")) or value not in _SAFE_VALUES


def skip_options(args: Sequence[ShellWord], valued: str, long: str = "") -> Sequence[ShellWord]:
    """Return the words after the options. `valued` and `long` are the options that take the next word as a value."""
    names = long.split()
    index = 0
    while index < len(args):
        text = args[index].text
        if text == "--":
            return args[index + 1 :]
        if not text.startswith("-") or text == "-":
            break
        if text.startswith("--"):
            index += 2 if any(name.startswith(text[2:]) for name in names) else 1
        else:
            index += 2 if text[-1] in valued and not set(text[1:-1]) & set(valued) else 1
    return args[index:]


def find_option_value(args: Sequence[ShellWord], short: str, long: str) -> ShellWord | None:
    """Return the value of an option, in any of the usual spellings, or None."""
    for index, word in enumerate(args):
        text = word.text
        if text in (f"--{long}", f"-{short}"):
            return args[index + 1] if index + 1 < len(args) else None
        for start in (f"--{long}=", f"-{short}"):
            if short and text.startswith(start) and not (start == f"-{short}" and text.startswith("--")):
                return ShellWord(text[len(start) :], word.expands, word.glob, word.quoted)
        if short and re.match(rf"-\w*{short}$", text) and not text.startswith("--"):
            return args[index + 1] if index + 1 < len(args) else None
    return None


_PWD_FORMS = ("$PWD", "${PWD}", "$(pwd)", "`pwd`")
_HOME_FORMS = ("$HOME", "${HOME}")
_PREFIX_WORDS = ("command", "builtin", "time", "-p", "--", "!", "{")


def follow_cd(folder: str | None, words: Sequence[ShellWord], *, home: bool = True) -> str | None:
    """Return the folder after this command if it succeeds. `home` is False if HOME may have been changed."""
    rest = list(words)
    while rest and rest[0].text in _PREFIX_WORDS:
        rest.pop(0)
    if not rest or rest[0].text not in ("cd", "pushd", "popd"):
        return folder
    if rest[0].text == "popd":
        return None
    operands = [word for word in rest[1:] if not word.text.startswith("-") or word.text == "-"]
    if not operands:
        return "~" if home and rest[0].text == "cd" else None
    return resolve_cd_target(folder, operands[0], home=home)


def resolve_cd_target(folder: str | None, word: ShellWord, *, home: bool = True) -> str | None:
    """Return the folder that a word names, relative to `folder`, or None if unknown."""
    text = word.text
    if word.expands:
        for name in _PWD_FORMS:
            if text == name or text.startswith(f"{name}/"):
                return join_folder(folder, text[len(name) :].lstrip("/") or ".")
        for name in (*_HOME_FORMS, "~"):
            if text == name or text.startswith(f"{name}/"):
                return "~" + text[len(name) :] if home else None
        return None
    if word.glob or not text or text == "-":
        return None
    return join_folder(folder, f"./{text}" if text.startswith("~") else text)


def join_folder(folder: str | None, text: str) -> str | None:
    """Join a path to a folder that may be unknown, relative, absolute or start with `~`."""
    if text.startswith(("/", "~")):
        return text
    if folder is None:
        return None
    return text if not folder else f"{folder.rstrip('/')}/{text}"


_MAX_INPUT_CHARS = 4_000
PASS_THROUGH = split_names("cat tee tac rev sort uniq head tail nl tr sed")
"""Programs whose standard input is only text, which they print."""


def find_inputs(commands: Sequence[SimpleCommand]) -> list[tuple[str, ...]]:
    """Return for each command the texts known to reach its standard input."""
    inputs: list[tuple[str, ...]] = []
    for index, simple in enumerate(commands):
        texts = tuple(item.target.text for item in simple.redirects if item.op == "<<<")
        if simple.operator in ("|", "|&") and index:
            texts = (*texts, *_find_output(commands[index - 1], inputs[-1]))
        inputs.append(tuple(text[:_MAX_INPUT_CHARS] for text in texts))
    return inputs


def _find_output(simple: SimpleCommand, stdin_texts: tuple[str, ...]) -> tuple[str, ...]:
    words = simple.words
    name = words[0].text.rsplit("/", 1)[-1] if words else ""
    if name == "echo":
        return (_resolve_escapes(" ".join(_list_printed_texts(words[1:]))),)
    if name == "printf":
        return (_resolve_escapes("\n".join(_list_printed_texts(words[1:]))),)
    if name == "pwd":
        return ("$PWD",)
    return stdin_texts if name in PASS_THROUGH else ()


def _list_printed_texts(words: Sequence[ShellWord]) -> list[str]:
    """Return the words that `echo` or `printf` prints, without its options."""
    texts = [word.text for word in words]
    while texts and re.fullmatch(r"-[neE]+|--", texts[0]):
        texts.pop(0)
    return texts


def _resolve_escapes(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def split_loose_words(text: str) -> list[ShellWord]:
    """Split text that could not be parsed into words at blanks, without quotes and backslashes."""
    return [_make_loose_word(piece) for piece in re.sub(r"['\"\\]", "", text).split()]


def _make_loose_word(text: str) -> ShellWord:
    expands = "$" in text or "`" in text or text.startswith("~") or ("{" in text and "," in text)
    return ShellWord(text, expands, any(char in text for char in "*?["))


_LONG_ESCAPES: dict[str, str] = {
    "git": "output output-directory exec upload-pack receive-pack open-files-in-pager ext-diff textconv config "
    "config-env template extcmd exec-path sendmail-cmd to-cmd cc-cmd header-cmd smtp-server tree-filter env-filter "
    "index-filter msg-filter commit-filter parent-filter tag-name-filter strategy",
    "sort": "output compress-program files0-from",
    "split": "filter",
    "rg": "pre hostname-bin",
    "fd": "exec exec-batch",
    "tar": "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script",
    "rsync": "rsh rsync-path remote-option",
    "curl": "output remote-name config upload-file dump-header cookie-jar trace trace-ascii libcurl stderr",
    "wget": "output-document output-file use-askpass execute config",
    "cargo": "config",
    "make": "eval",
    "gmake": "eval",
    "npm": "script-shell prefix globalconfig userconfig node-options shell git viewer editor init-module call",
    "pnpm": "script-shell config.script-shell node-options dir",
    "yarn": "use-yarnrc cwd script-shell",
    "node": "require import loader experimental-loader eval print env-file",
    "man": "pager html config-file",
    "less": "log-file lesskey-src",
    "pytest": "rootdir config-file override-ini confcutdir pyargs",
    "mypy": "config-file python-executable install-types shadow-file custom-typeshed-dir",
    "pylint": "load-plugins init-hook rcfile",
    "flake8": "config append-config",
    "coverage": "rcfile",
    "eslint": "config rulesdir plugin parser format resolve-plugins-relative-to",
    "prettier": "plugin plugin-search-dir config",
    "jest": "config globalSetup setupFiles setupFilesAfterEnv runner testRunner transform reporters testEnvironment "
    "resolver",
    "vitest": "config globalSetup reporter environment",
    "mocha": "require config package reporter ui",
    "rspec": "require options format",
    "rubocop": "require plugin config",
    "phpunit": "bootstrap extension configuration loader printer",
    "rake": "rakefile require execute execute-print execute-continue",
    "bundle": "gemfile",
    "gradle": "init-script build-file settings-file include-build",
    "mvn": "file settings global-settings",
    "dotnet": "logger settings property",
    "helm": "post-renderer",
    "kubectl": "kubeconfig",
    "ansible-playbook": "inventory module-path vault-password-file connection",
    "tox": "conf",
    "nox": "noxfile",
    "pre-commit": "config",
    "cmake": "toolchain",
    "gdb": "command eval-command init-command",
    "zip": "unzip-command",
}
"""Long escape options by program. Any prefix counts, since most programs accept abbreviations."""

_SINGLE_DASH_ESCAPES: dict[str, str] = {
    "go": "exec toolexec overlay vettool modfile pkgdir ldflags gcflags asmflags gccgoflags compiler",
    "terraform": "chdir plugin-dir",
    "dotnet": "logger l distributedlogger dl property p",
    "gcc": "wrapper specs fplugin",
    "clang": "fplugin load",
    "mvn": "gs",
    "sqlite3": "cmd init",
}
"""Programs whose long options have one dash."""

_SHORT_ESCAPES: dict[str, str] = {
    "git grep": "O",
    "git rebase": "x",
    "git difftool": "x",
    "git clone": "cu",
    "git format-patch": "o",
    "git merge": "s",
    "sort": "oT",
    "fd": "xX",
    "tar": "IF",
    "rsync": "eM",
    "ssh": "oFS",
    "scp": "oFSD",
    "sftp": "oFSDb",
    "curl": "oOKTDc",
    "wget": "Ooei",
    "zip": "T",
    "tree": "o",
    "man": "PHC",
    "less": "oOk",
    "tcpdump": "zw",
    "pytest": "pco",
    "node": "rep",
    "ruby": "re",
    "perl": "eEM",
    "npm": "c",
    "eslint": "cf",
    "mocha": "rRu",
    "jest": "c",
    "rspec": "rOf",
    "rubocop": "rc",
    "rake": "freRpE",
    "make": "E",
    "gradle": "Ibc",
    "mvn": "fst",
    "gcc": "B",
    "tox": "cx",
    "nox": "f",
    "gdb": "x",
    "cmake": "PDEC",
    "vim": "cSu",
    "psql": "cf",
}
"""Short escape options by program, for git by subcommand. They also count inside a bundle."""

_ASSIGNED_ESCAPES: dict[str, str] = dict.fromkeys(
    ("make", "gmake"),
    r"(SHELL|\.SHELLFLAGS|MAKE|MAKEFLAGS|MAKEFILES|CC|CXX|CPP|LD|AR|AS|PYTHON|GO|CARGO|NPM|NODE|BASH|SH)(\?|\+|:|::)?=.*",
)
"""Operands that set a variable which names a program."""

NAMED_RUNS: dict[str, str] = {
    "git": "run foreach filter-branch",
    **dict.fromkeys(("npm", "pnpm", "yarn"), "exec x dlx node explore"),
    **dict.fromkeys(("bun", "deno"), "run x"),
    **dict.fromkeys(split_names("uv poetry pipenv hatch pdm rye pixi conda mamba pipx"), "run"),
    **dict.fromkeys(split_names("bundle asdf mise direnv opam"), "exec"),
    **dict.fromkeys(split_names("npx pnpx bunx uvx"), ""),
}
"""Commands that run the program named after them, by program; "" if the program itself does."""

FREE_RUNS: dict[str, str] = {
    **dict.fromkeys(split_names("docker podman nerdctl kubectl oc"), "run exec debug"),
    "deno": "eval repl",
    "nix": "run shell develop",
    "swift": "build run test package",
    **dict.fromkeys(
        split_names(
            "sed gsed awk gawk mawk nawk sqlite3 psql mysql mariadb ed red ex vi vim nvim view emacs m4 dc gnuplot gdb "
            "lldb less more find fd fdfind ssh parallel eval watch watchexec hyperfine entr script su runuser at batch "
            "crontab tmux screen nix-shell nodemon concurrently vite webpack webpack-cli msbuild xbuild"
        ),
        "",
    ),
}
"""Commands that run text or load code which any of their words may hold; "" if every command of the program does."""

_FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
_SAFE_OPTIONS = re.compile(r"-p=?no:[\w.-]+")


def find_escape_option(words: Sequence[str], rest: Sequence[str]) -> str:
    """Return the first escape option in `rest`, or the command in it that runs others, or "".

    `words` is the whole command. Before `rest` it may name several programs, as in `uv run pytest`.
    """
    tables = (_LONG_ESCAPES, _SINGLE_DASH_ESCAPES, _SHORT_ESCAPES, _ASSIGNED_ESCAPES, NAMED_RUNS, FREE_RUNS)
    named = [
        at for at in range(1, len(words) - len(rest)) if any(words[at].rsplit("/", 1)[-1] in table for table in tables)
    ]
    found = (_find_program_escape(words[at:], rest) for at in (0, *named))
    return next(filter(None, found), "")


def _find_program_escape(words: Sequence[str], rest: Sequence[str]) -> str:
    known = _strip_module(words)
    name = known[0].rsplit("/", 1)[-1]
    running = find_running_command(known)
    if running and running in rest:
        return running
    assigned = _ASSIGNED_ESCAPES.get(name, "")
    for index, text in enumerate(rest):
        if assigned and re.fullmatch(assigned, text):
            return text
        if not text.startswith("-") or len(text) < 2 or _SAFE_OPTIONS.fullmatch(text):
            continue
        if name == "pytest" and text == "-p" and rest[index + 1 : index + 2] and rest[index + 1].startswith("no:"):
            continue
        if _is_escape_option(known, name, text):
            return text
    return ""


def find_running_command(words: Sequence[str]) -> str:
    """Return the first or second operand of a program if it runs others, such as `exec` in `npm exec x`, else ""."""
    name = words[0].rsplit("/", 1)[-1]
    known = f"{NAMED_RUNS.get(name, '')} {FREE_RUNS.get(name, '')}".split()
    operands = [text for text in words[1:] if not text.startswith("-")][:2] if known else ()
    return next((text for at, text in enumerate(operands) if text in known and (text != "x" or not at)), "")


def _strip_module(words: Sequence[str]) -> Sequence[str]:
    """Return `pytest …` for `python -m pytest …`."""
    if len(words) > 2 and re.fullmatch(r"python[\d.]*", words[0].rsplit("/", 1)[-1]) and words[1] == "-m":
        return words[2:]
    return words


def _is_escape_option(words: Sequence[str], name: str, text: str) -> bool:
    if name == "find":
        return text in _FIND_ACTIONS
    option = re.split(r"[=:]", text.lstrip("-"), maxsplit=1)[0]
    if name in _SINGLE_DASH_ESCAPES and option in _SINGLE_DASH_ESCAPES[name].split():
        return True
    if text.startswith("--"):
        return len(option) > 1 and any(known.startswith(option) for known in _LONG_ESCAPES.get(name, "").split())
    if name in ("go", "terraform"):
        return False
    if name == "git" and words[1].startswith("-"):
        return text.startswith("-c")
    letters = _SHORT_ESCAPES.get(name, "") or _SHORT_ESCAPES.get(" ".join(words[:2]), "")
    return any(letter in text[1:] for letter in letters)
