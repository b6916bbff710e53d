"""Finds commands that would destroy the machine, a disk, a home folder or the project.

No mode, flag or rule allows these. The checks do not stop malice; they stop accidents that cannot be undone.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from odin.policy.command_scope import CommandScope
from odin.policy.commands.destructive.embedded_code import (
    TEXT_PROGRAMS,
    find_delegated_texts,
    find_script_harm,
    scan_shell_text,
)
from odin.policy.commands.destructive.removal import (
    REMOVERS,
    HarmCheck,
    check_archive,
    check_chmod,
    check_fd,
    check_find,
    check_mv,
    check_piped_removal,
    check_removal,
    check_rsync,
    check_uncertain_removal,
    list_operands,
    list_options,
)
from odin.policy.commands.destructive.targets import ExpansionContext, Harm, expand_word, make_expansion_context
from odin.policy.commands.programs import INTERPRETERS, SHELLS
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names

_FORK_BOMB = re.compile(
    r"([\w:.]{1,32})\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1"
    r"|\b(\w{1,32})\s*\(\s*\)\s*\{\s*\2\s*&\s*\2\s*&?\s*;?\s*\}"
)
_NAME_LOOKUP = re.compile(r"(?:\$\(|`)\s*(?:which|command\s+-v|type\s+-[pP]|whereis)\s+([\w.-]+)\s*(?:\)|`)")
_FIELD_SEPARATOR = re.compile(r"\$\{?IFS\}?")
_MAX_EMBEDDED = 60
_INSTALLING = split_names("install add i uninstall remove update upgrade info show search view why list ls docs help")


def find_harm(command: str, analysis: CommandAnalysis, scope: CommandScope) -> Harm:
    """Return why this command must never run, as a clause ("it ..."), or ""."""
    context = make_expansion_context(analysis, scope)
    if _is_fork_bomb(command, analysis):
        return "it is a fork bomb"
    why = _check_disk_redirect(analysis, context) if analysis.redirects else ""
    for part in dict.fromkeys(analysis.commands):
        why = why or _check_part(part, context, analysis)
    return why or check_piped_removal(analysis.commands, context) or _check_unreadable(command, analysis, context)


def find_risk(analysis: CommandAnalysis, scope: CommandScope) -> Harm:
    """Return the risk of a removal that may be approved, as a clause, or ""."""
    context = make_expansion_context(analysis, scope)
    for part in analysis.commands:
        if part.name.casefold() in REMOVERS:
            why = check_uncertain_removal(part, context)
            if why:
                return why
    return ""


def _check_part(part: ExtractedCommand, context: ExpansionContext, analysis: CommandAnalysis) -> Harm:
    if not part.words[0].literal:
        named_parts = list(_expand_name(part, context))
        return next((why for why in (_check_named(other, context) for other in named_parts) if why), "")
    why = _check_named(part, context)
    if why:
        return why
    if INTERPRETERS.fullmatch(part.name):
        why = _check_interpreter(part, context, analysis)
    else:
        why = _check_embedded(part, context, analysis)
    return why or _check_delegated(part, context)


def _check_named(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check a command by its name, including the names in GNU (`grm`) and uutils (`uu_rm`) collections."""
    name = part.name.casefold().removesuffix(".exe")
    for known in dict.fromkeys((name, name.removeprefix("g"), name.removeprefix("uu_"))):
        for check in (_HARM_CHECKS.get(known), _MACHINE_CHECKS.get(known)):
            why = check(part, context) if check else ""
            if why:
                return why
    return _check_mkfs(part, context)


def _expand_name(part: ExtractedCommand, context: ExpansionContext) -> Iterator[ExtractedCommand]:
    """Yield the commands that a name such as `$x`, `$(which x)`, `/bin/x?` or `{x,y}` may expand to."""
    first, rest = part.words[0], part.words[1:]
    text = _NAME_LOOKUP.sub(lambda match: match[1], _FIELD_SEPARATOR.sub(" ", first.text))
    text = re.sub(r"\$\{?[@*]\}?|\$\{?x\}?(?=\w)", "", text)
    if first.glob and not first.expands:
        base = text.rsplit("/", 1)[-1]
        yield from (
            ExtractedCommand((ShellWord(name), *rest), True, part.folder)
            for name in _HARM_CHECKS
            if fnmatchcase(name, base)
        )
        return
    forms = expand_word(part, ShellWord(text, expands=True), context)
    words = [ShellWord(piece, "$" in piece, "*" in piece) for form in forms for piece in form.split()]
    if words:
        yield ExtractedCommand((*words, *rest), True, part.folder)
    if len(forms) > 1 or "\0" in text:
        for form in forms:
            pieces = [ShellWord(piece, "$" in piece, "*" in piece) for piece in form.split()]
            yield ExtractedCommand((*pieces, *rest), True, part.folder)
    if forms and any("\0" in form for form in forms):
        letters = {letter for word in rest if re.fullmatch(r"-\w+", word.text) for letter in word.text}
        if {"r", "f"} <= {letter.casefold() for letter in letters}:
            yield ExtractedCommand((ShellWord("rm"), *rest), True, part.folder)


def _check_interpreter(part: ExtractedCommand, context: ExpansionContext, analysis: CommandAnalysis) -> Harm:
    """Check code for an interpreter, given as an argument or on standard input."""
    texts = [*part.texts[1:], *part.stdin_texts]
    if analysis.script is not None:
        texts += analysis.script.bodies
    if any("argv" in text.casefold() for text in texts):
        texts.append(f"system({' '.join(part.texts[1:])})")
    return next((why for text in texts if (why := find_script_harm(text, context, _scan))), "")


def _check_embedded(part: ExtractedCommand, context: ExpansionContext, analysis: CommandAnalysis) -> Harm:
    """Check for a removal among the words of an unknown program that may run them: `uv run`, `npx`, `chronic`."""
    if part.name in TEXT_PROGRAMS or len(part.words) < 3:
        return ""
    for index, word in enumerate(part.words[1:_MAX_EMBEDDED], 1):
        name = word.text.rsplit("/", 1)[-1].casefold()
        if name in _INSTALLING:
            return ""
        inner = ExtractedCommand(part.words[index:], True, part.folder, part.stdin_texts)
        if name in _EMBEDDED_PROGRAMS:
            why = _check_named(inner, context)
        elif index and INTERPRETERS.fullmatch(name):
            why = _check_interpreter(inner, context, analysis)
        elif name in SHELLS:
            why = next((why for text in inner.texts[1:] if " " in text and (why := _scan(text, context))), "")
        else:
            continue
        if why:
            return why
    return ""


def _check_delegated(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return next((why for text in find_delegated_texts(part) if (why := _scan(text, context))), "")


def _scan(text: str, context: ExpansionContext) -> Harm:
    return scan_shell_text(text, context, _check_named, _is_suspect)


def _is_suspect(name: str) -> bool:
    return name in _HARM_CHECKS or name in _EMBEDDED_PROGRAMS or name in _DISK_PROGRAMS or name.startswith("mkfs")


def _check_unreadable(command: str, analysis: CommandAnalysis, context: ExpansionContext) -> Harm:
    """Scan scripts that could not be parsed: the whole command, or parts of it."""
    texts = [*analysis.unreadable_texts, *([command] if analysis.script is None else [])]
    for text in texts:
        why = _scan(text, context)
        if not why and any(INTERPRETERS.fullmatch(part.name.casefold()) for part in analysis.commands):
            why = find_script_harm(text, context, _scan)
        if why:
            return why
    if (
        analysis.script is not None
        and not analysis.is_complete
        and any(part.name in _RUNS_FILES for part in analysis.commands)
    ):
        return next((why for text in _find_written_texts(analysis) if (why := _scan(text, context))), "")
    return ""


def _find_written_texts(analysis: CommandAnalysis) -> Iterator[str]:
    """Yield the texts that a command writes to files or to another command, where a shell may run them."""
    if analysis.script is None:
        return
    yield from analysis.script.bodies
    for simple in analysis.script.commands:
        name = simple.words[0].text if simple.words else ""
        if name in ("echo", "printf") and (simple.nested or any(">" in item.op for item in simple.redirects)):
            yield (
                "\n".join(word.text for word in simple.words[1:])
                if name == "printf"
                else " ".join(word.text for word in simple.words[1:])
            )


def _is_fork_bomb(command: str, analysis: CommandAnalysis) -> bool:
    if "(" in command and _FORK_BOMB.search(command):
        return True
    if not analysis.functions or "&" not in command or analysis.script is None:
        return False
    commands = analysis.script.commands
    return any(
        simple.operator == "|"
        and simple.nested
        and simple.words
        and before.words
        and simple.words[0].text == before.words[0].text
        and simple.words[0].text in analysis.functions
        for before, simple in pairwise(commands)
    )


_HARM_CHECKS: dict[str, HarmCheck] = {
    **dict.fromkeys(REMOVERS, check_removal),
    **dict.fromkeys(("find", "bfs", "bfind"), check_find),
    **dict.fromkeys(("fd", "fdfind"), check_fd),
    **dict.fromkeys(("tar", "bsdtar", "zip", "7z"), check_archive),
    "mv": check_mv,
    "rsync": check_rsync,
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), check_chmod),
}
_EMBEDDED_PROGRAMS = frozenset({*REMOVERS, "find", "rimraf", "dd", "rsync"})
_DISK_PROGRAMS = split_names("dd wipefs blkdiscard mke2fs rmdir rd del erase")
_RUNS_FILES = SHELLS | split_names("source . eval")


# --- disks, shutdown and processes ---

_DISK_PATH = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z*?\[]|nvme\d|nvme[*?\[]|mmcblk|r?disk\d|disk/|mapper/|dm-|md\d|sr\d|zd\d|nbd\d|loop\d"
    r"|block/|k?mem$|port$|mtd|pmem|root$)"
)
_SHUTDOWN_PROGRAMS = split_names("shutdown reboot poweroff halt stop-computer restart-computer")
_DISK_HARM = "it overwrites a disk"
_SHUTDOWN_HARM = "it stops the machine"
_HELP_OPTIONS = split_names("--help --version -h -V")


def _is_disk(text: str) -> bool:
    if "/dev/" not in text and not text.startswith("/"):
        return False
    return _DISK_PATH.match("/" + os.path.normpath(text).lstrip("/")) is not None


def _check_disk_redirect(analysis: CommandAnalysis, context: ExpansionContext) -> Harm:
    for redirect in analysis.writes:
        for form in expand_word(ExtractedCommand(()), redirect.target, context):
            if _is_disk(form):
                return _DISK_HARM
            if form == "/proc/sysrq-trigger":
                return _SHUTDOWN_HARM
    return ""


def _is_disk_word(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> bool:
    return any(_is_disk(form) for form in expand_word(part, word, context))


def _check_dd(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    for word in part.words[1:]:
        target = word.text.removeprefix("of=")
        if target != word.text and _is_disk_word(part, ShellWord(target, word.expands, word.glob), context):
            return _DISK_HARM
    return ""


def _check_disk_target(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    if "/proc/sysrq-trigger" in part.texts:
        return _SHUTDOWN_HARM
    return _DISK_HARM if any(_is_disk_word(part, word, context) for word in part.words[1:]) else ""


def _check_copy(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """cp and install write to their last operand."""
    words = list_operands(part.words[1:])
    return _DISK_HARM if words and _is_disk_word(part, words[-1], context) else ""


def _check_wipefs(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return _check_disk_target(part, context) if list_options(part.words[1:]) & {"a", "o", "--all", "--offset"} else ""


def _check_format(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    if _is_help_request(part):
        return ""
    return "it formats a disk"


def _is_help_request(part: ExtractedCommand) -> bool:
    """True if the only arguments are --help, --version or similar."""
    return bool(part.texts[1:]) and set(part.texts[1:]) <= _HELP_OPTIONS


def _make_word_check(words: str, why: str) -> HarmCheck:
    harmful = split_names(words)

    def check(part: ExtractedCommand, context: ExpansionContext) -> Harm:
        return why if harmful & set(part.texts[1:]) else ""

    return check


def _check_drive(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return "it formats a disk" if any(re.fullmatch(r"[A-Za-z]:\\?", text) for text in part.texts[1:]) else ""


def _check_windows_delete(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    switches = {text.casefold() for text in part.texts[1:]}
    return "it removes a whole tree" if switches & {"/s", "/f", "-recurse"} else ""


def _check_kill(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return "it ends every process of the user" if "-1" in part.texts[2:] else ""


def _check_shutdown(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return "" if _is_help_request(part) or "-c" in part.texts else _SHUTDOWN_HARM


def _check_runlevel(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return _SHUTDOWN_HARM if {"0", "6"} & set(part.texts[1:]) else ""


def _check_crontab(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return "it removes all scheduled jobs" if list_options(part.words[1:]) & {"r"} else ""


_PARTITION_HARM = "it changes the partitions or the contents of a disk"

_MACHINE_CHECKS: dict[str, HarmCheck] = {
    "dd": _check_dd,
    "dcfldd": _check_dd,
    "tee": _check_disk_target,
    "truncate": _check_disk_target,
    "shred": _check_disk_target,
    "blkdiscard": _check_disk_target,
    "mkswap": _check_disk_target,
    "cp": _check_copy,
    "install": _check_copy,
    "wipefs": _check_wipefs,
    "parted": _make_word_check("mklabel mktable rm mkpart resizepart", _PARTITION_HARM),
    "sgdisk": _make_word_check("-Z -z --zap --zap-all -o --clear", _PARTITION_HARM),
    "sfdisk": _make_word_check("--delete --wipe", _PARTITION_HARM),
    "cryptsetup": _make_word_check("luksFormat erase luksErase reencrypt", _PARTITION_HARM),
    "badblocks": _make_word_check("-w -n -wsv -nsv", _PARTITION_HARM),
    "nvme": _make_word_check("format sanitize", _PARTITION_HARM),
    "hdparm": _make_word_check("--security-erase --security-erase-enhanced --trim-sector-ranges", _PARTITION_HARM),
    "zpool": _make_word_check("destroy labelclear", _PARTITION_HARM),
    "zfs": _make_word_check("destroy", _PARTITION_HARM),
    "diskutil": _make_word_check("eraseDisk eraseVolume zeroDisk secureErase partitionDisk", _PARTITION_HARM),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove"), _check_format),
    "diskpart": _check_format,
    "newfs": _check_format,
    "mke2fs": _check_format,
    "format": _check_drive,
    "format.com": _check_drive,
    "del": _check_windows_delete,
    "erase": _check_windows_delete,
    "rmdir": _check_windows_delete,
    "rd": _check_windows_delete,
    "vssadmin": _make_word_check("delete Delete", "it removes the backups of the system"),
    "kill": _check_kill,
    "killall5": _check_shutdown,
    "systemctl": _make_word_check("poweroff reboot halt kexec emergency rescue", _SHUTDOWN_HARM),
    "loginctl": _make_word_check("poweroff reboot halt", _SHUTDOWN_HARM),
    "kexec": _make_word_check("-e --exec", _SHUTDOWN_HARM),
    "init": _check_runlevel,
    "telinit": _check_runlevel,
    "crontab": _check_crontab,
    **dict.fromkeys(_SHUTDOWN_PROGRAMS, _check_shutdown),
}


def _check_mkfs(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """Check `mkfs` and `mkfs.*`."""
    return _check_format(part, context) if part.name.startswith("mkfs") else ""
