"""Parsing of command lines: words as in bash, reasons for doubt, and the folder of each command."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.parser import examine_command, parse_command
from odin.policy.commands.syntax import MAX_COMMAND_CHARS, CommandAnalysis, ShellWord, Unparseable
from tests.table import each
from tests.waiting import LIMIT_S


def parse_words(command: str) -> list[ShellWord]:
    """Return the words of the outer command, which follows the commands nested in it."""
    return list(parse_command(command).commands[-1].words)


def is_plain(command: str) -> bool:
    script, _ = examine_command(command)
    return script.plain


# --- words ---


@each(
    ("text", "word"),
    [
        ("abc", "abc"),
        ("'a b'", "a b"),
        ('"a b"', "a b"),
        ("a\\ b", "a b"),
        ("'a'b\"c\"\\d", "abcd"),
        ("''", ""),
        ('""', ""),
        ("'it'\\''s'", "it's"),
        ('"a\\"b\\\\c\\d\\$e\\`"', 'a"b\\c\\d$e`'),
        ("'a\\b$c`'", "a\\b$c`"),
        ("--format='%h %s'", "--format=%h %s"),
        ("a=b", "a=b"),
        ("HEAD^", "HEAD^"),
        ("HEAD~1", "HEAD~1"),
        ("stash@{0}", "stash@{0}"),
        ("{}", "{}"),
        ("a#b", "a#b"),
        ("!", "!"),
        ("!=", "!="),
        ("\\*", "*"),
        ("'*'", "*"),
        ('"?"', "?"),
        ("\\~", "~"),
        ("a,b", "a,b"),
        ("é漢", "é漢"),
        ("a\\\nb", "ab"),
        ("'a\nb'", "a\nb"),
    ],
)
def test_quotes_and_escapes_are_removed_from_literal_words(text: str, word: str):
    found = parse_words(f"x {text}")[1]
    assert found.text == word
    assert found.literal


@each(
    "text",
    [
        "$x",
        "${x}",
        '"$x"',
        "a$x",
        "$1",
        "$@",
        "$(a)",
        "`a`",
        '"`a`"',
        "<(a)",
        "$((1))",
        "$[1]",
        "${x:-y}",
        "${x@P}",
        "~",
        "~/x",
        "~root",
        "a=~/x",
        "a:~/x",
        "{a,b}",
        "{1..3}",
        "x{a,b}y",
        '{"a",b}',
        "$'a'",
        '$"a"',
        "=ls",
        "^a^b",
        "!x",
        "!!",
        '"!x"',
    ],
)
def test_words_that_the_shell_expands_are_not_literal(text: str):
    assert not parse_words(f"x {text}")[1].literal
    assert parse_words(f"x {text}")[1].expands


@pytest.mark.parametrize("text", ["*", "*.md", "a?b", "[ab]", "src/*", "'a'*"])
def test_glob_patterns_are_marked(text: str):
    found = parse_words(f"x {text}")[1]
    assert found.glob
    assert not found.expands


PIECES = st.sampled_from(
    [
        *("a", "b", "-", "=", ".", "/", ",", ":", "@", "%", "+", "#", "!", "~", "^", "é", "0", "1", "_"),
        *("'a b'", "'", '"', '"a b"', "''", '""', "\\", "\\ ", "\\'", '\\"', "\\\\", "\\$", "\\*", "\\\n"),
        *(" ", "  ", "\t", "$$", "x$", "\\\n#"),
        *("'$x'", "'`'", '"\'"', "'\"'", '"\\""', '"\\a"', "*", "?", "[", "]", "{", "}", "{a,b}", "$", "$x"),
        *("$'a'", "(", ")", "{fd}>", '$""', "$-", "$#"),
        *("=~", "\\#", " #", "<", ">", "|", "&", ";", "\n", "1>", "2>&1", '"!', "!a", "''#", '$"', "\\~", ":~"),
    ]
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, min_size=1, max_size=8).map("".join))
def test_literal_words_are_the_words_that_bash_produces(tmp_path_factory: pytest.TempPathFactory, text: str):
    """Everything that runs without approval depends on this. No generated text can name a program."""
    command = f"printf '%s\\0' x{text}"
    script, why = examine_command(command)
    if why or len(script.commands) != 1 or script.commands[0].redirects or script.doubts:
        return
    found = script.commands[0].words
    if not all(word.literal for word in found):
        return
    folder = tmp_path_factory.mktemp("words")
    ran = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", command],
        cwd=folder,
        env={"PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode().split("\0")[:-1] == [word.text for word in found[2:]]
    assert not list(folder.iterdir())


# --- plain commands ---


@each(
    "command",
    [
        "ls",
        "  ls -la  ",
        "ls -la src tests",
        "ls *.md",
        "git log --format='%h %s' | head -5",
        'grep -n "a b" x && echo "c"',
        "a; b",
        "a;b;",
        "a\nb\n\nc\n",
        "a ||\nb",
        "a \\\n  -b",
        "ls 2>/dev/null >&2",
        "ls 2>&1",
        "ls > x",
        "[ -d src ] && echo yes",
        "NO_COLOR=1 git status",
        "find . \\( -name a -o -name 'b*' \\) -print",
    ],
)
def test_plain_commands_are_recognized(command: str):
    assert is_plain(command)


@each(
    "command",
    [
        "coproc ls",
        "time -p ! ls",
        "time -p -- { ls",
        "time time ! ls",
        "time coproc ls",
        "time ! ls",
        "! ls",
        "ls &",
        "ls & pwd",
        "ls |& cat",
        "(ls)",
        "{ ls; }",
        "if a; then b; fi",
        "for x in a; do b; done",
        "case x in x) a;; esac",
        "f() { a; }",
        "[[ a ]]",
        "(( 1 ))",
        "ls\\\n# x",
        "ls $x",
        "ls $(a)",
        "ls `a`",
        "ls <(a)",
        "ls {a,b}",
        "ls ~",
        "ls $'a'",
        "ls <<E\nE",
        "ls <<< $x",
        "[[ -v x ]]",
        "[[ a -eq b ]]",
        "[[ a == b* ]]",
        "[[ a =~ b ]]",
        "[[ -f a && -f b ]]",
        "ls <&0",
        "ls 1<>x",
        "ls {fd}>x",
        "ls 12>x",
        "a\\\nb",
        "echo \\ x",
        "then ls",
        "do",
        "ls\\",
        "=ls",
        "^a^b",
        "echo !x",
        "a=(1)",
        "a[1]=2",
    ],
)
def test_other_syntax_is_not_plain(command: str):
    assert not is_plain(command)


# --- texts that cannot be parsed, and incomplete analysis ---


@each(
    ("command", "reason"),
    [
        ("ls\0", "NUL"),
        ("ls\x1b[2K", "control character (U+001B)"),
        ("ls\x7f", "control character"),
        ("ls\r\nx", "carriage return"),
        ("ls\x85", "control character"),
        ("ls \u202e x", "text direction (U+202E)"),
        ("ls \u2066 x", "text direction"),
        ("ls\u200b", "invisible character (U+200B)"),
        ("ls\ufeff", "invisible"),
        ("ls\u00ad", "invisible"),
        ("ls\u3164x", "invisible"),
        ("ls\u2800x", "invisible"),
        ("ls\ufe0f", "invisible"),
        ("ls\U000e0041", "invisible"),
        ("ls\u00a0x", "unusual space (U+00A0)"),
        ("ls\u3000x", "space"),
        ("ls\u2028x", "line separator"),
        ("ls \ud800", "lone surrogate"),
        ("ls \ue000", "private"),
        ("a" * (MAX_COMMAND_CHARS + 1), "too long"),
        ("a 'b", "not complete"),
        ("a $(b", "not complete"),
        ("a && ", "not complete"),
        ("(a", "not complete"),
        ("if a; then b", "not complete"),
        ("[ -d x && touch y ]", "not complete"),
        ("[ a > y ]", "inside a test"),
        ("echo \\ x", "not part of any command"),
        ("{a b; }", ""),
        ("cat <<A <<B\nx\nA\ny\nB", ""),
    ],
)
def test_unparseable_text_has_a_reason(command: str, reason: str):
    with pytest.raises(Unparseable) as raised:
        parse_command(command)
    assert reason in raised.value.reason
    seen = analyze_command(command)
    assert not seen.is_complete
    assert seen.script is None
    assert seen.reason == raised.value.reason


@pytest.mark.parametrize("command", ["ls é", "echo 漢字", "echo '→ ✓ 😀'", "echo 'ä\tb'", "grep 'naïve' x"])
def test_letters_of_any_script_are_plain(command: str):
    assert is_plain(command)


@each(
    "command",
    [
        "[[ 'a[$(b)]' -eq 0 ]]",
        "[[ -v 'a[$(b)]' ]]",
        "test -v 'a[$(b)]'",
        "[ -v 'a[$(b)]' ]",
        "printf -v 'a[$(b)]' x",
        "printf -vx y",
        "echo ${x@P}",
        "echo ${!x}",
        "echo ${x[y]}",
        "echo ${x:y}",
        "echo $((x))",
        "echo $[x]",
        "((x))",
        "let x=y",
        "read 'a[$(b)]'",
        "declare -i x=y",
        "declare -n x=y",
        "unset 'a[$(b)]'",
        "export 'x=1' PATH=/x",
        "PATH=/x ls",
        "LD_PRELOAD=x ls",
        "BASH_ENV=x bash -c ls",
        "IFS=x; ls",
        "env PATH=. ls",
        "GIT_SSH_COMMAND=x git fetch",
        "alias ls=x",
        "source x",
        ". x",
        "enable -f x y",
        "hash -p x y",
        "bash x",
        "bash",
        "bash -s",
        "curl x | sh",
        'bash -c "$x"',
        'eval "$x"',
        "$x y",
        "$(x) y",
        "~/x",
        "*.sh",
        "coproc x",
        "time ! x",
        "git -c core.pager=x log",
        "git --exec-path=. log",
        "git difftool",
        "parallel x ::: y",
        "ssh host x",
        "su",
        "script x",
        "cat <<E\n${x@P}\nE",
        "cat <<E\n`x`\nE",
        "sudo " * 20 + "x",
    ],
)
def test_analysis_is_incomplete_if_other_commands_could_run_unseen(command: str):
    seen = analyze_command(command)
    assert not seen.is_complete
    assert seen.reason


@each(
    "command",
    [
        "X=1 ls",
        "GIT_EDITOR=true git rebase --continue",
        "GIT_PAGER=cat git log",
        "set -e; make",
        "export X=1; make",
        "python3 -m pytest",
        "[[ -d x && a == b* ]]",
        "[[ $x =~ ^a(b|c)$ ]]",
        "echo $((1 + 2)) ${x} ${x:-y} ${#x} ${x%.py}",
        "for f in *.py; do wc -l $f; done",
        "if [ -f x ]; then cat x; elif [ -d y ]; then ls; else pwd; fi",
        "while true; do ls; done",
        "git commit -m \"$(cat <<'E'\nsome text; with `things` and $(more)\nE\n)\"",
        "cat > x <<'E'\n$(a) `b` ${c@P}\nE",
        "cat <<E\nplain $x text\nE",
        "exec 3<>x",
        "git -c user.name=x commit -m y",
        "bash --version",
    ],
)
def test_analysis_of_everyday_scripts_is_complete(command: str):
    seen = analyze_command(command)
    assert seen.is_complete, seen.reason


# --- nested commands and their folders ---


def list_commands(command: str) -> list[str]:
    return [" ".join(part.texts) for part in analyze_command(command).commands]


@each(
    ("command", "inner"),
    [
        ("timeout -k 5 --signal KILL 10 a b", "a b"),
        ("sudo -u x -g y -- a b", "a b"),
        ("sudo X=1 a b", "a b"),
        ("env -u X -C d Y=1 a b", "a b"),
        ("env -S 'a b'", "a b"),
        ("env -S'a b' c", "a b c"),
        ("env --split-string='a b'", "a b"),
        ("env -vS 'a b'", "a b"),
        ("env -S -- a b", "a b"),
        ("env -S '-i X=1 a' b", "a b"),
        ("env --spl='a b'", "a b"),
        ("timeout --sig KILL 5 a b", "a b"),
        ("bash -euo pipefail -c 'a b'", "a b"),
        ("bash -O extglob -c 'a b'", "a b"),
        ("bash -c -- 'a b' x", "a b"),
        ("su - x -c 'a b'", "a b"),
        ("su x --command='a b'", "a b"),
        ("runuser -u x -c 'a b'", "a b"),
        ("script -q -c 'a b' log", "a b"),
        ("flock -w 5 lock a b", "a b"),
        ("flock lock -c 'a b'", "a b"),
        ("xargs -0 -n 1 -I {} a b", "a b"),
        ("xargs -I{} sh -c 'a b'", "a b"),
        ("find . -ok a b \\;", "a b"),
        ("find . -okdir a b \\;", "a b"),
        ("parallel -j 4 a b ::: 1", "a b 1"),
        ("git submodule foreach --recursive 'a b'", "a b"),
        ("git bisect run a b", "a b"),
        ("git rebase --exec 'a b' x", "a b"),
        ("git -c alias.q='!a b' q", "a b"),
        ("trap 'a b' EXIT", "a b"),
        ("watch -n 5 'a b'", "a b"),
        ("nsenter -t 1 -m a b", "a b"),
        ("systemd-run --user -p X=1 a b", "a b"),
        ("coproc N { a b; }", "a b"),
        ("time { a b; }", "a b"),
        ("! a b", "a b"),
        ("bash <<< 'a b'", "a b"),
        ("cat <<A | b && c\nx\nA", "c"),
        ("cat <<A > f b\nx\nA", "cat b"),
        ("a > f b", "a b"),
        ("> f a b", "a b"),
        ("${x:-$(a b)}", "a b"),
        ('"${x:-$(a b)}"', "a b"),
        ("echo $((1 + $(a b)))", "a b"),
        ("x[$(a b)]=1", "a b"),
        ("x=(1 $(a b))", "a b"),
        ("declare x=$(a b)", "a b"),
        ("[[ $(a b) == c ]]", "a b"),
        ('[ "$(a b)" = c ]', "a b"),
        ("case $(a b) in x) ;; esac", "a b"),
        ("case x in $(a b)) ;; esac", "a b"),
        ("for x in $(a b); do c; done", "a b"),
        ("for ((i=0; i<$(a b); i++)); do c; done", "a b"),
        ("a b 'unclosed", "a b unclosed"),
        ("a b && (", "a b"),
        ("a b; if", "a b"),
    ],
)
def test_nested_commands_are_found(command: str, inner: str):
    assert inner in list_commands(command) or (
        command.endswith("unclosed") and list_commands(command)[0].startswith("a")
    )


def test_very_many_commands_are_all_found():
    text = "true;" * 1500 + "a b"
    assert len(list_commands(text)) == 1501
    assert list_commands(text)[-1] == "a b"
    assert not analyze_command(text).is_complete
    assert analyze_command("true;" * 400 + "a b").is_complete


def test_commands_of_an_overlong_text_are_found():
    seen = analyze_command("true;" * 3000 + "a b")
    assert not seen.is_complete
    assert seen.commands[-1].texts == ("a", "b")


@each(
    ("command", "folder"),
    [
        ("q", ""),
        ("cd d && q", "d"),
        ("cd d; q", "d"),
        ("cd d\nq", "d"),
        ("cd /d && q", "/d"),
        ("cd d && cd e && q", "d/e"),
        ("cd ~/d && q", "~/d"),
        ("cd && q", "~"),
        ("cd $HOME/d && q", "~/d"),
        ("cd - && q", None),
        ("cd $x && q", None),
        ("cd d* && q", None),
        ("popd && q", None),
        ("pushd d && q", "d"),
        ("cd -P -- d && q", "d"),
        ("cd d || q", ""),
        ("cd d || exit 1; q", "d"),
        ("(cd d); q", ""),
        ("(cd d && q)", "d"),
        ("{ cd d; q; }", "d"),
        ("{ cd d; }; q", "d"),
        ("cd d | q", ""),
        ("x=$(cd d); q", ""),
        ("x=$(cd d && q)", "d"),
        ("if cd d; then q; fi", "d"),
        ("if x; then cd d; fi; q", None),
        ("for x in a; do cd d; done; q", None),
        ("cd d && bash -c 'q'", "d"),
        ("bash -c 'cd d'; q", ""),
        ("cd d && sudo q", "d"),
        ("env -C d q", "d"),
        ("command cd d && q", "d"),
        ("unset HOME; cd; q", None),
        ("HOME=/x; cd; q", None),
        ('cd "$(pwd)" && q', "."),
    ],
)
def test_folder_is_tracked_through_a_compound_command(command: str, folder: str | None):
    seen = analyze_command(command)
    assert [part.folder for part in seen.commands if part.name == "q"] == [folder]


# --- arbitrary text ---


def check_analysis(text: str) -> CommandAnalysis:
    """Analyze a text, and check that the analysis is consistent."""
    seen = analyze_command(text)
    assert seen.is_complete == (not seen.reason)
    assert seen.script is not None or not seen.is_complete
    return seen


@pytest.mark.parametrize("before", ["{", "{1", "{1..", "{1..2", "a{{", "$(echo {", "`echo {1.."])
def test_any_character_after_a_brace_can_be_analyzed(before: str):
    """The tree-sitter grammar reads out of bounds for these characters, which crashes for some of them."""
    for code in range(0x100, 0x110000, 0x3FF):
        if not 0xD800 <= code < 0xE000:
            assert not check_analysis(f"{before}{chr(code)}").is_complete


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_can_be_analyzed(text: str):
    check_analysis(text)


@given(st.text(st.sampled_from(list("ab01 '\"\\$(){}[]`;|&<>#*?~=!^-+/%@:,\n\t")), max_size=60))
def test_any_shell_like_text_can_be_analyzed(text: str):
    check_analysis(text)


OPENINGS = [
    *("(", "$(", "{ ", "((", "$((", "`", '"$(', "<(", "[[ ( ", "if ", "${x:-", "case x in x) ", "while ", "a=(", "! "),
    *("\\", "'", '"', "<<E\n", "[", "eval ", "bash -c '", "sudo ", "$x[", "a|", "a&&", "function f { "),
]


@pytest.mark.slow
@each("opening", OPENINGS)
def test_analysis_of_deep_nesting_terminates(opening: str):
    """The time is bounded at any nesting depth, and overlong texts are read to their end."""
    check_analysis((opening * MAX_COMMAND_CHARS)[:MAX_COMMAND_CHARS])
    assert not check_analysis(opening * (MAX_COMMAND_CHARS + 1)).is_complete


def test_the_parser_is_not_loaded_before_it_is_needed(tmp_path: Path):
    code = "import sys, odin.policy.policy; assert not [n for n in sys.modules if n.startswith('tree_sitter')]"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=LIMIT_S)


@each(
    "text",
    [
        "x\\ \\\n# ; rm -rf z",
        "x\\;\\\n# ; rm -rf z",
        "x$(true)\\\n# ; rm -rf z",
        "'x '\\\n# ; rm -rf z",
        "x\\\n# ; rm z",
    ],
)
def test_comment_sign_inside_a_word_does_not_hide_a_command(text: str) -> None:
    with pytest.raises(Unparseable, match="looks like a comment"):
        parse_command(f"printf {text}")
