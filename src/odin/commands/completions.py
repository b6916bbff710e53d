"""`odin completions SHELL`: print a completion script, generated from the argument parsers."""

import argparse
import contextlib
import importlib
from collections.abc import Iterator

from msgspec import Struct

from odin.commands.command_line import Parser, build_parser, make_formatter, write_output
from odin.commands.main import COMMANDS, SHORTHANDS

EPILOG = """\
  bash   source <(odin completions bash)                     in ~/.bashrc
  zsh    source <(odin completions zsh)                      in ~/.zshrc, after compinit
  fish   odin completions fish > ~/.config/fish/completions/odin.fish
"""


class CompletionWord(Struct, frozen=True):
    """A flag with its help, or a choice."""

    text: str
    help: str = ""


class CommandSyntax(Struct, frozen=True):
    """The flags, positional choices and flag values of one command."""

    name: str
    flags: tuple[CompletionWord, ...]
    words: tuple[CompletionWord, ...]
    choices: dict[str, tuple[str, ...]]


class _ParserCaught(Exception):
    """Carries a parser out of the command that created it."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.parser = parser


def run_completions(argv: list[str]) -> int:
    parser = Parser(
        prog="odin completions", description="Print a completion script.", epilog=EPILOG, formatter_class=make_formatter
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    args = parser.parse_args(argv)
    commands = [make_syntax("", build_parser()), *list_commands()]
    return write_output({"bash": _format_bash, "zsh": _format_zsh, "fish": _format_fish}[args.shell](commands))


def list_commands() -> Iterator[CommandSyntax]:
    for name, module in COMMANDS.items():
        yield make_syntax(name, capture_parser(name, module))
    main = make_syntax("", build_parser())
    for name in SHORTHANDS:
        yield CommandSyntax(name, main.flags, (), main.choices)


def capture_parser(name: str, module: str) -> argparse.ArgumentParser:
    """Return the parser of a subcommand, intercepted when it starts to parse."""

    def take(parser: Parser) -> None:
        raise _ParserCaught(parser)

    command = getattr(importlib.import_module(f"odin.commands.{module}"), f"run_{name}")
    Parser.observer = take
    try:
        with contextlib.suppress(SystemExit):
            command([])
    except _ParserCaught as caught:
        return caught.parser
    finally:
        Parser.observer = None
    raise AssertionError(f"{name} has no parser")


def make_syntax(name: str, parser: argparse.ArgumentParser) -> CommandSyntax:
    flags: list[CompletionWord] = []
    words: list[CompletionWord] = []
    choices: dict[str, tuple[str, ...]] = {}
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        values = tuple(map(str, action.choices)) if action.choices else ()
        if not action.option_strings:
            words += [CompletionWord(value) for value in values if value]
        for flag in action.option_strings:
            flags.append(CompletionWord(flag, action.help or ""))
            if values:
                choices[flag] = values
    return CommandSyntax(name, tuple(flags), tuple(words), choices)


def _format_bash(commands: list[CommandSyntax]) -> str:
    main, *others = commands
    names = " ".join(item.name for item in others)
    lines = [
        "_odin() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  case "${COMP_WORDS[1]}:$before" in',
        "    resume:resume|*:-r|*:--resume) words=\"$(odin sessions 2>/dev/null | cut -d' ' -f1)\" ;;",
        "    *:-m|*:--model) words=\"$(odin models 2>/dev/null | cut -d' ' -f1 | grep /)\" ;;",
        *(_format_bash_choice(item) for item in others if item.choices),
        *(f'    *:{flag}) words="{" ".join(words)}" ;;' for flag, words in main.choices.items()),
        "  esac",
        '  if [[ -z $words ]]; then case "${COMP_WORDS[1]}" in',
        *(f'    {item.name}) words="{_join_words(item)}" ;;' for item in others),
        f'    *) words="{_join_words(main)}"; [[ $COMP_CWORD -eq 1 ]] && words+=" {names}" ;;',
        "  esac; fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '  [[ ${#COMPREPLY[@]} -eq 0 && $word != -* ]] && COMPREPLY=($(compgen -f -- "$word"))',
        "  return 0",
        "}",
        "complete -o filenames -F _odin odin",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _format_bash_choice(item: CommandSyntax) -> str:
    return "\n".join(f'    {item.name}:{flag}) words="{" ".join(words)}" ;;' for flag, words in item.choices.items())


def _join_words(item: CommandSyntax) -> str:
    return " ".join(word.text for word in (*item.words, *item.flags))


def _format_zsh(commands: list[CommandSyntax]) -> str:
    """Return the bash script, which zsh runs with bashcompinit."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_format_bash(commands)}"


def _format_fish(commands: list[CommandSyntax]) -> str:
    main, *others = commands
    names = " ".join(item.name for item in others)
    alone = f"not __fish_seen_subcommand_from {names}"
    lines = [f"complete -c odin -n '{alone}' -a {item.name}" for item in others]
    lines += [line for word in main.flags for line in _format_fish_flag(alone, word, main)]
    for item in others:
        seen = f"__fish_seen_subcommand_from {item.name}"
        lines += [f"complete -c odin -n '{seen}' -a {word.text}" for word in item.words]
        lines += [line for word in item.flags for line in _format_fish_flag(seen, word, item)]
    ids = "(odin sessions 2>/dev/null | string split -f1 ' ')"
    lines.append(f"complete -c odin -n '__fish_seen_subcommand_from resume' -a \"{ids}\"")
    models = "(odin models 2>/dev/null | string match -r '^\\S+/\\S+')"
    lines.append(f'complete -c odin -s m -l model -x -a "{models}"')
    return "\n".join(lines) + "\n"


def _format_fish_flag(condition: str, word: CompletionWord, item: CommandSyntax) -> Iterator[str]:
    kind = "-l" if word.text.startswith("--") else "-s"
    text = word.help.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    values = f" -x -a '{' '.join(item.choices[word.text])}'" if word.text in item.choices else ""
    yield f"complete -c odin -n '{condition}' {kind} {word.text.lstrip('-')}{values} -d '{text}'"
