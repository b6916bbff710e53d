"""Removals of whole trees, by whatever program."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from odin.policy.command.ruinous.targets import Harm, emptied, lost, lost_when_empty
from odin.policy.command.ruinous.values import Place, forms
from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part

Check = Callable[[Part, Place], Harm]

REMOVERS = named("rm srm wipe rimraf unlink shred trash trash-put gvfs-trash gio del-cli remove-item ri")
_ALWAYS_RECURSIVE = named("rimraf trash trash-put gvfs-trash gio del-cli")
_NARROWING = named(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -newer -anewer -cnewer -mtime -mmin -atime -amin "
    "-ctime -cmin -size -empty -user -group -uid -gid -nouser -nogroup -perm -inum -links -samefile -lname -ilname "
    "-newermt -newerct -newerat -used"
)
_TAKING = named("xargs parallel")
_TAKING_ALONE = named("remove-item ri")
_LISTING = named("find ls dir gci get-childitem echo printf")
_ANYTHING = re.compile(r"[*?./]*")
_ELSEWHERE = "it removes what lies in a folder that cannot be told"


def options(words: Sequence[Word]) -> set[str]:
    """Short options as letters and long ones by name, up to `--`."""
    found: set[str] = set()
    for word in words:
        text = word.text
        if text == "--":
            break
        if text.startswith("--"):
            found.add(text.split("=", 1)[0])
        elif text.startswith("-"):
            found.update(text[1:])
            found.add(text.casefold())
    return found


def operands(words: Sequence[Word]) -> list[Word]:
    for index, word in enumerate(words):
        if word.text == "--":
            return [*operands(words[:index]), *words[index + 1 :]]
    return [word for word in words if not word.text.startswith("-") or word.text == "-"]


def shortened(given: set[str], name: str, least: int) -> bool:
    """Whether a long option is there, in full or in a beginning of it that programs accept."""
    return any(len(item) >= least and name.startswith(item) for item in given if item.startswith("--"))


def _recursive(part: Part, place: Place) -> bool:
    words = _known_values(part, place)
    given = options(words)
    if part.name.casefold() in _ALWAYS_RECURSIVE:
        return True
    if part.name.casefold() in ("remove-item", "ri"):
        return any("-recurse".startswith(item) and len(item) > 1 for item in given)
    return bool(given & {"r", "R"}) or shortened(given, "--recursive", 3) or shortened(given, "--no-preserve-root", 4)


def _known_values(part: Part, place: Place) -> list[Word]:
    """The words with variables replaced where the text says what they hold."""
    words: list[Word] = []
    for word in part.words[1:]:
        made = forms(part, word, place) if word.expands and word.text.startswith("$") else []
        options_in = [text for form in made for text in form.split() if text.startswith("-") and text != "--"]
        words += [Word(text) for text in options_in] or [word]
    return words


def removal(part: Part, place: Place) -> Harm:
    if not _recursive(part, place):
        return ""
    own = part.name.casefold() in _ALWAYS_RECURSIVE
    for word in operands(part.words[1:]):
        why = lost(part, Word(word.text, word.expands, glob=True) if own else word, place)
        if why:
            return why
        if word.glob and re.search(r"/[*.?]", word.text) and lost_when_empty(part, word, place):
            return f"it removes everything if the variable in {word.text!r} is empty"
    if shortened(options(part.words[1:]), "--no-preserve-root", 6):
        return "it is told not to spare the root of the file system"
    return ""


def uncertain_removal(part: Part, place: Place) -> Harm:
    """What makes a removal dangerous that is not certain to be ruinous."""
    if not _recursive(part, place):
        return ""
    for word in operands(part.words[1:]):
        why = lost_when_empty(part, word, place)
        if why:
            return f"if the variable in {word.text!r} is empty, {why}"
        if part.folder is None and emptied(word.text)[0] in (".", ".."):
            return _ELSEWHERE
    return ""


def found_removal(part: Part, place: Place) -> Harm:
    """find with -delete or a removing -exec, where nothing narrows down what it finds."""
    words = part.words[1:]
    texts = [word.text for word in words]
    if not _deletes(texts):
        return ""
    starts = _starts(words)
    narrowed = _narrowed(texts)
    if _takes_repositories(texts) and any(lost(part, word, place) for word in starts):
        return "it removes the history of the project (.git)"
    for word in starts:
        why = lost(part, word, place)
        if why and (not narrowed or why.startswith(("it removes the root", "it removes the system"))):
            return why
    return ""


def _deletes(texts: Sequence[str]) -> bool:
    if "-delete" in texts:
        return True
    running = [index for index, text in enumerate(texts) if text in ("-exec", "-execdir", "-ok", "-okdir")]
    return any(_removes_found(texts[index + 1 :]) for index in running)


def _removes_found(texts: Sequence[str]) -> bool:
    end = next((index for index, text in enumerate(texts) if text in (";", "+")), len(texts))
    given = texts[:end]
    removes = any(text.rsplit("/", 1)[-1] in REMOVERS or re.search(r"\brm\s", text) for text in given)
    return removes and any("{}" in text for text in given)


def _starts(words: Sequence[Word]) -> list[Word]:
    starts: list[Word] = []
    for word in words:
        if word.text in ("-L", "-H", "-P") or re.match(r"-[DO]", word.text):
            continue
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    return starts or [Word(".")]


def _narrowed(texts: Sequence[str]) -> bool:
    for index, text in enumerate(texts):
        if text not in _NARROWING:
            continue
        negated = texts[index - 1] in ("!", "-not") if index else False
        value = texts[index + 1] if index + 1 < len(texts) else ""
        if not negated and not (text.endswith(("name", "path", "regex")) and _ANYTHING.fullmatch(value)):
            return True
    return False


def _takes_repositories(texts: Sequence[str]) -> bool:
    names = pairwise(texts)
    return "-delete" not in texts and any(
        flag in ("-name", "-iname") and value.casefold() == ".git" for flag, value in names
    )


def piped_removal(parts: Sequence[Part], place: Place) -> Harm:
    """xargs with a remover, fed by the command before it."""
    before: Part | None = None
    for part in parts:
        removes = any(text.rsplit("/", 1)[-1].casefold() in REMOVERS for text in part.texts)
        name = part.name.casefold()
        takes = name in _TAKING or (name in _TAKING_ALONE and not operands(part.words[1:]))
        if before and removes and takes:
            why = _fed(before, part, place)
            if why:
                return why
        if not removes and (not part.found_inside or name in _LISTING):
            before = part
    return ""


def _fed(source: Part, part: Part, place: Place) -> Harm:
    if source.name == "find":
        if _narrowed(source.texts[1:]):
            return ""
        starts = _starts(source.words[1:])
        return next((why for why in (lost(source, word, place) for word in starts) if why), "")
    if source.name in ("echo", "printf"):
        if not re.search(r"(?:^| )(?:-\w*[rR]|--r)", " ".join(part.texts)):
            return ""
        return next((why for why in (lost(source, word, place) for word in source.words[1:]) if why), "")
    if source.name.casefold() in _LISTING:
        named_folders = operands(source.words[1:]) or [Word(".")]
        return next((why for why in (lost(source, word, place) for word in named_folders) if why), "")
    return ""


def searched_removal(part: Part, place: Place) -> Harm:
    """fd with a removing -x, where no pattern narrows down what it finds."""
    texts = list(part.texts[1:])
    at = next((index for index, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), -1)
    if at < 0 or not any(text.rsplit("/", 1)[-1] in REMOVERS for text in texts[at + 1 :]):
        return ""
    words = operands(part.words[1 : at + 1])
    narrow = any(re.match(r"-[egStd]|--(?:ext|glob|size|changed|type|max-depth)", text) for text in texts[:at])
    if narrow or (words and words[0].text not in (".", "", "*", ".*")):
        return ""
    return next((why for why in (lost(part, word, place) for word in words[1:] or [Word(".")]) if why), "")


def archiving(part: Part, place: Place) -> Harm:
    """tar and zip that remove what they have packed."""
    texts = part.texts[1:]
    if part.name == "zip":
        removes = any(re.fullmatch(r"-\w*m\w*|--move", text) for text in texts)
    else:
        removes = any(text in ("--remove-files", "-sdel") for text in texts)
    if not removes:
        return ""
    return next((why for why in (lost(part, word, place) for word in operands(part.words[1:])) if why), "")


def moving(part: Part, place: Place) -> Harm:
    """mv of a vital tree to elsewhere, or of anything into the null device."""
    words = operands(part.words[1:])
    if len(words) < 2:
        return ""
    if words[-1].text == "/dev/null":
        return "it moves files into the null device"
    for word in words[:-1]:
        text, everything = emptied(word.text)
        why = lost(part, word, place)
        if why and not (everything and not text.startswith(("/", "~", "$"))) and ".git" not in text:
            return why.replace("removes", "moves away", 1)
    return ""


def mirroring(part: Part, place: Place) -> Harm:
    """rsync that deletes what its source does not have."""
    if not any(text.startswith(("--del", "--remove-source")) for text in part.texts):
        return ""
    words = operands(part.words[1:])
    return lost(part, words[-1], place) if words else ""


def rights(part: Part, place: Place) -> Harm:
    """chmod, chown and their kin for a whole tree."""
    given = options(part.words[1:])
    if not (given & {"R"} or shortened(given, "--recursive", 4)):
        return ""
    for word in operands(part.words[1:]):
        why = lost(part, word, place)
        if why and not why.endswith(("the project itself", "(.git)")):
            return why.replace("removes", "changes the rights of", 1)
    return ""
