"""Where `cd` leads, told from its words alone."""

from collections.abc import Sequence

from odin.policy.command.shapes import ShellWord

_PWD_FORMS = ("$PWD", "${PWD}", "$(pwd)", "`pwd`")
_HOME_FORMS = ("$HOME", "${HOME}")
_PREFIX_WORDS = ("command", "builtin", "time", "-p", "--", "!", "{")


def follow_cd(folder: str | None, words: Sequence[ShellWord], *, home: bool = True) -> str | None:
    """The folder after this command, supposing it succeeds. `home` is False when HOME may have been changed."""
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
    """Where a word leads from a folder; None when that cannot be told."""
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
    """A path seen from a folder, either of which may be unknown, relative, full, or begin with `~`."""
    if text.startswith(("/", "~")):
        return text
    if folder is None:
        return None
    return text if not folder else f"{folder.rstrip('/')}/{text}"
