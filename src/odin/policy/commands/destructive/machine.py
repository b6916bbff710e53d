"""What takes a disk, the machine or all its processes with it."""

import os
import re

from odin.policy.commands.destructive.removal import HarmCheck, operands_of, options_of
from odin.policy.commands.destructive.targets import ExpansionContext, Harm, expand_word
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names

_DISK_PATH = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z*?\[]|nvme\d|nvme[*?\[]|mmcblk|r?disk\d|disk/|mapper/|dm-|md\d|sr\d|zd\d|nbd\d|loop\d"
    r"|block/|k?mem$|port$|mtd|pmem|root$)"
)
_SHUTDOWN_PROGRAMS = split_names("shutdown reboot poweroff halt stop-computer restart-computer")
_DISK_HARM = "it overwrites a disk"
_SHUTDOWN_HARM = "it stops the machine"
_HELP_OPTIONS = split_names("--help --version -h -V")


def is_disk(text: str) -> bool:
    if "/dev/" not in text and not text.startswith("/"):
        return False
    return _DISK_PATH.match("/" + os.path.normpath(text).lstrip("/")) is not None


def check_disk_redirect(analysis: CommandAnalysis, context: ExpansionContext) -> Harm:
    for redirect in analysis.writes:
        for form in expand_word(ExtractedCommand(()), redirect.target, context):
            if is_disk(form):
                return _DISK_HARM
            if form == "/proc/sysrq-trigger":
                return _SHUTDOWN_HARM
    return ""


def _is_disk_word(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> bool:
    return any(is_disk(form) for form in expand_word(part, word, context))


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
    """cp, install and mv write their last operand."""
    words = operands_of(part.words[1:])
    return _DISK_HARM if words and _is_disk_word(part, words[-1], context) else ""


def _check_wipefs(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    return _check_disk_target(part, context) if options_of(part.words[1:]) & {"a", "o", "--all", "--offset"} else ""


def _check_format(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    if _is_help_request(part):
        return ""
    return "it formats a disk"


def _is_help_request(part: ExtractedCommand) -> bool:
    """A question to the program itself."""
    return bool(part.texts[1:]) and set(part.texts[1:]) <= _HELP_OPTIONS


def _make_word_check(words: str, why: str) -> HarmCheck:
    wanted = split_names(words)

    def check(part: ExtractedCommand, context: ExpansionContext) -> Harm:
        return why if wanted & set(part.texts[1:]) else ""

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
    return "it removes all scheduled jobs" if options_of(part.words[1:]) & {"r"} else ""


_PARTITION_HARM = "it changes the partitions or the contents of a disk"

MACHINE_CHECKS: dict[str, HarmCheck] = {
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


def check_mkfs(part: ExtractedCommand, context: ExpansionContext) -> Harm:
    """mkfs in all its spellings."""
    return _check_format(part, context) if part.name.startswith("mkfs") else ""
