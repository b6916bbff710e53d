"""Checks programs that remove, move or change whole trees, and git commands that discard changes."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from odin.policy.commands.destructive.targets import (
    ExpansionContext,
    Harm,
    expand_word,
    find_loss,
    find_loss_when_empty,
    strip_wildcards,
)
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names

HarmCheck = Callable[[ExtractedCommand, ExpansionContext], Harm]

REMOVERS = split_names("rm srm wipe rimraf unlink shred trash trash-put gvfs-trash gio del-cli remove-item ri")
_ALWAYS_RECURSIVE = split_names("rimraf trash trash-put gvfs-trash gio del-cli")
_NARROWING_TESTS = split_names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -newer -anewer -cnewer -mtime -mmin -atime -amin "
    "-ctime -cmin -size -empty -user -group -uid -gid -nouser -nogroup -perm -inum -links -samefile -lname -ilname "
    "-newermt -newerct -newerat -used"
)
_STDIN_TAKERS = split_names("xargs parallel")
_BARE_STDIN_TAKERS = split_names("remove-item ri")
_LISTERS = split_names("find ls dir gci get-childitem echo printf")
_ANYTHING = re.compile(r"[*?./]*")
_UNKNOWN_FOLDER_HARM = "it removes the contents of an unknown folder"


def list_options(words: Sequence[ShellWord]) -> set[str]:
    """Return short options as letters and long ones by name, up to `--`."""
    options: set[str] = set()
    for word in words:
        text = word.text
        if text == "--":
            break
        if text.startswith("--"):
            options.add(text.split("=", 1)[0])
        elif text.startswith("-"):
            options.update(text[1:])
            options.add(text.casefold())
    return options


def list_operands(words: Sequence[ShellWord]) -> list[ShellWord]:
    for index, word in enumerate(words):
        if word.text == "--":
            return [*list_operands(words[:index]), *words[index + 1 :]]
    return [word for word in words if not word.text.startswith("-") or word.text == "-"]


def has_long_option(options: set[str], name: str, least: int) -> bool:
    """True if a long option is given, in full or abbreviated to at least `least` characters."""
    return any(len(item) >= least and name.startswith(item) for item in options if item.startswith("--"))


def _is_recursive(part: ExtractedCommand, context: ExpansionContext) -> bool:
    words = _expand_option_words(part, context)
    options = list_options(words)
    if part.name.casefold() in _ALWAYS_RECURSIVE:
        return True
    if part.name.casefold() in ("remove-item", "ri"):
        return any("-recurse".startswith(item) and len(item) > 1 for item in options)
    return (
        bool(options & {"r", "R"})
        or has_long_option(options, "--recursive", 3)
        or has_long_option(options, "--no-preserve-root", 4)
    )


def _expand_option_words(part: ExtractedCommand, context: ExpansionContext) -> list[ShellWord]:
    """Return the words with variables replaced by the options they are known to contain."""
    words: list[ShellWord] = []
    for word in part.words[1:]:
        forms = expand_word(part, word, context) if word.expands and word.text.startswith("$") else []
        options_in = [text for form in forms for text in form.split() if text.startswith("-") and text != "--"]
        words += [ShellWord(text) for text in options_in] or [word]
    return words


def check_removal(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    if not _is_recursive(part, context):
        return ""
    own = part.name.casefold() in _ALWAYS_RECURSIVE
    for word in list_operands(part.words[1:]):
        why = find_loss(part, ShellWord(word.text, word.expands, glob=True) if own else word, context)
        if why:
            return why
        if word.glob and re.search(r"/[*.?]", word.text) and find_loss_when_empty(part, word, context):
            return f"it removes everything if the variable in {word.text!r} is empty"
    if has_long_option(list_options(part.words[1:]), "--no-preserve-root", 6):
        return "it may remove the root of the file system (--no-preserve-root)"
    return ""


def check_uncertain_removal(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Return the risk of a removal that is not certainly destructive, or ""."""
    if not _is_recursive(part, context):
        return ""
    for word in list_operands(part.words[1:]):
        why = find_loss_when_empty(part, word, context)
        if why:
            return f"if the variable in {word.text!r} is empty, {why}"
        if part.folder is None and strip_wildcards(word.text)[0] in (".", ".."):
            return _UNKNOWN_FOLDER_HARM
    return ""


def check_find(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check find with -delete or a removing -exec, unless a test narrows down the matches."""
    words = part.words[1:]
    texts = [word.text for word in words]
    if not _is_deleting(texts):
        return ""
    starts = _list_start_points(words)
    narrowed = _is_narrowed(texts)
    if _is_taking_repositories(texts) and any(find_loss(part, word, context) for word in starts):
        return "it removes the history of the project (.git)"
    for word in starts:
        why = find_loss(part, word, context)
        if why and (not narrowed or why.startswith(("it removes the root", "it removes the system"))):
            return why
    return ""


def _is_deleting(texts: Sequence[str]) -> bool:
    if "-delete" in texts:
        return True
    running = [index for index, text in enumerate(texts) if text in ("-exec", "-execdir", "-ok", "-okdir")]
    return any(_is_removing_found(texts[index + 1 :]) for index in running)


def _is_removing_found(texts: Sequence[str]) -> bool:
    end = next((index for index, text in enumerate(texts) if text in (";", "+")), len(texts))
    command = texts[:end]
    removes = any(text.rsplit("/", 1)[-1] in REMOVERS or re.search(r"\brm\s", text) for text in command)
    return removes and any("{}" in text for text in command)


def _list_start_points(words: Sequence[ShellWord]) -> list[ShellWord]:
    starts: list[ShellWord] = []
    for word in words:
        if word.text in ("-L", "-H", "-P") or re.match(r"-[DO]", word.text):
            continue
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    return starts or [ShellWord(".")]


def _is_narrowed(texts: Sequence[str]) -> bool:
    for index, text in enumerate(texts):
        if text not in _NARROWING_TESTS:
            continue
        negated = texts[index - 1] in ("!", "-not") if index else False
        value = texts[index + 1] if index + 1 < len(texts) else ""
        if not negated and not (text.endswith(("name", "path", "regex")) and _ANYTHING.fullmatch(value)):
            return True
    return False


def _is_taking_repositories(texts: Sequence[str]) -> bool:
    names = pairwise(texts)
    return "-delete" not in texts and any(
        flag in ("-name", "-iname") and value.casefold() == ".git" for flag, value in names
    )


def check_piped_removal(parts: Sequence[ExtractedCommand], context: ExpansionContext) -> Harm:
    """Check xargs with a remover that reads the output of the command before it."""
    before: ExtractedCommand | None = None
    for part in parts:
        removes = any(text.rsplit("/", 1)[-1].casefold() in REMOVERS for text in part.texts)
        name = part.name.casefold()
        takes = name in _STDIN_TAKERS or (name in _BARE_STDIN_TAKERS and not list_operands(part.words[1:]))
        if before and removes and takes:
            why = _check_fed(before, part, context)
            if why:
                return why
        if not removes and (not part.is_inner or name in _LISTERS):
            before = part
    return ""


def _check_fed(source: ExtractedCommand, part: ExtractedCommand, context: ExpansionContext) -> Harm:
    if source.name == "find":
        if _is_narrowed(source.texts[1:]):
            return ""
        starts = _list_start_points(source.words[1:])
        return next((why for why in (find_loss(source, word, context) for word in starts) if why), "")
    if source.name in ("echo", "printf"):
        if not re.search(r"(?:^| )(?:-\w*[rR]|--r)", " ".join(part.texts)):
            return ""
        return next((why for why in (find_loss(source, word, context) for word in source.words[1:]) if why), "")
    if source.name.casefold() in _LISTERS:
        named_folders = list_operands(source.words[1:]) or [ShellWord(".")]
        return next((why for why in (find_loss(source, word, context) for word in named_folders) if why), "")
    return ""


def check_fd(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check fd with a removing -x, unless a pattern narrows down the matches."""
    texts = list(part.texts[1:])
    at = next((index for index, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), -1)
    if at < 0 or not any(text.rsplit("/", 1)[-1] in REMOVERS for text in texts[at + 1 :]):
        return ""
    words = list_operands(part.words[1 : at + 1])
    narrow = any(re.match(r"-[egStd]|--(?:ext|glob|size|changed|type|max-depth)", text) for text in texts[:at])
    if narrow or (words and words[0].text not in (".", "", "*", ".*")):
        return ""
    return next((why for why in (find_loss(part, word, context) for word in words[1:] or [ShellWord(".")]) if why), "")


def check_archive(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check tar and zip with an option that removes the archived files."""
    texts = part.texts[1:]
    if part.name == "zip":
        removes = any(re.fullmatch(r"-\w*m\w*|--move", text) for text in texts)
    else:
        removes = any(text in ("--remove-files", "-sdel") for text in texts)
    if not removes:
        return ""
    return next((why for why in (find_loss(part, word, context) for word in list_operands(part.words[1:])) if why), "")


def check_mv(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check mv of a vital folder, or of anything to the null device."""
    words = list_operands(part.words[1:])
    if len(words) < 2:
        return ""
    if words[-1].text == "/dev/null":
        return "it moves files to the null device"
    for word in words[:-1]:
        text, everything = strip_wildcards(word.text)
        why = find_loss(part, word, context)
        if why and not (everything and not text.startswith(("/", "~", "$"))) and ".git" not in text:
            return why.replace("removes", "moves away", 1)
    return ""


def check_rsync(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check rsync with --delete or --remove-source-files."""
    if not any(text.startswith(("--del", "--remove-source")) for text in part.texts):
        return ""
    words = list_operands(part.words[1:])
    return find_loss(part, words[-1], context) if words else ""


def check_chmod(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check chmod, chown and similar commands with a recursive option."""
    options = list_options(part.words[1:])
    if not (options & {"R"} or has_long_option(options, "--recursive", 4)):
        return ""
    for word in list_operands(part.words[1:]):
        why = find_loss(part, word, context)
        if why and not why.endswith(("the project itself", "(.git)")):
            return why.replace("removes", "changes the permissions of", 1)
    return ""


_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
_UNCOMMITTED_HARM = "it discards uncommitted changes"
_FORCE_OPTIONS = {"-f", "--force", "--discard-changes"}


def find_discard_harm(analysis: CommandAnalysis) -> Harm:
    """Return what a git command would discard, as a clause, or ""."""
    return next((why for part in analysis.commands if part.name == "git" and (why := _check_git(part.texts[1:]))), "")


def _check_git(texts: Sequence[str]) -> Harm:
    rest = list(texts)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _GIT_VALUED else rest[1:]
    verb, arguments = (rest[0] if rest else ""), set(rest[1:])
    letters = {letter for text in arguments if text.startswith("-") and not text.startswith("--") for letter in text}
    match verb:
        case "clean" if "f" in letters or "--force" in arguments:
            return "it removes untracked files"
        case "stash" if arguments & {"drop", "clear"}:
            return "it discards stashed changes"
        case "reset" if arguments & {"--hard", "--merge", "--keep"}:
            return _UNCOMMITTED_HARM
        case "checkout" | "switch" if arguments & {*_FORCE_OPTIONS, "--", "."}:
            return _UNCOMMITTED_HARM
        case "restore" if (
            not ("S" in letters or "--staged" in arguments) or "W" in letters or "--worktree" in arguments
        ):
            return _UNCOMMITTED_HARM
        case _:
            return ""
