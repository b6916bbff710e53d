"""What takes a disk, the machine or all its processes with it."""

import os
import re

from odin.policy.command.ruinous.removal import Check, operands, options
from odin.policy.command.ruinous.targets import Harm
from odin.policy.command.ruinous.values import Place, forms
from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part, Survey

_DISKS = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z*?\[]|nvme\d|nvme[*?\[]|mmcblk|r?disk\d|disk/|mapper/|dm-|md\d|sr\d|zd\d|nbd\d|loop\d"
    r"|block/|k?mem$|port$|mtd|pmem|root$)"
)
_ENDERS = named("shutdown reboot poweroff halt stop-computer restart-computer")
_DISK = "it overwrites a disk"
_END = "it stops the machine"
_ASKING = named("--help --version -h -V")


def is_disk(text: str) -> bool:
    if "/dev/" not in text and not text.startswith("/"):
        return False
    return _DISKS.match("/" + os.path.normpath(text).lstrip("/")) is not None


def disk_redirect(seen: Survey, place: Place) -> Harm:
    for redirect in seen.writes:
        for form in forms(Part(()), redirect.target, place):
            if is_disk(form):
                return _DISK
            if form == "/proc/sysrq-trigger":
                return _END
    return ""


def _names_disk(part: Part, word: Word, place: Place) -> bool:
    return any(is_disk(form) for form in forms(part, word, place))


def _dump(part: Part, place: Place) -> Harm:
    for word in part.words[1:]:
        target = word.text.removeprefix("of=")
        if target != word.text and _names_disk(part, Word(target, word.expands, word.glob), place):
            return _DISK
    return ""


def _onto_disk(part: Part, place: Place) -> Harm:
    if "/proc/sysrq-trigger" in part.texts:
        return _END
    return _DISK if any(_names_disk(part, word, place) for word in part.words[1:]) else ""


def _copied(part: Part, place: Place) -> Harm:
    """cp, install and mv write their last operand."""
    words = operands(part.words[1:])
    return _DISK if words and _names_disk(part, words[-1], place) else ""


def _wipe(part: Part, place: Place) -> Harm:
    return _onto_disk(part, place) if options(part.words[1:]) & {"a", "o", "--all", "--offset"} else ""


def _format(part: Part, place: Place) -> Harm:
    if _asks(part):
        return ""
    return "it formats a disk"


def _asks(part: Part) -> bool:
    """A question to the program itself."""
    return bool(part.texts[1:]) and set(part.texts[1:]) <= _ASKING


def _with_words(words: str, why: str) -> Check:
    wanted = named(words)

    def check(part: Part, place: Place) -> Harm:
        return why if wanted & set(part.texts[1:]) else ""

    return check


def _drive(part: Part, place: Place) -> Harm:
    return "it formats a disk" if any(re.fullmatch(r"[A-Za-z]:\\?", text) for text in part.texts[1:]) else ""


def _windows(part: Part, place: Place) -> Harm:
    switches = {text.casefold() for text in part.texts[1:]}
    return "it removes a whole tree" if switches & {"/s", "/f", "-recurse"} else ""


def _kill(part: Part, place: Place) -> Harm:
    return "it ends every process of the user" if "-1" in part.texts[2:] else ""


def _end(part: Part, place: Place) -> Harm:
    return "" if _asks(part) or "-c" in part.texts else _END


def _runlevel(part: Part, place: Place) -> Harm:
    return _END if {"0", "6"} & set(part.texts[1:]) else ""


def _crontab(part: Part, place: Place) -> Harm:
    return "it removes all scheduled jobs" if options(part.words[1:]) & {"r"} else ""


_DISK_CHANGES = "it changes the partitions or the contents of a disk"

MACHINE: dict[str, Check] = {
    "dd": _dump,
    "dcfldd": _dump,
    "tee": _onto_disk,
    "truncate": _onto_disk,
    "shred": _onto_disk,
    "blkdiscard": _onto_disk,
    "mkswap": _onto_disk,
    "cp": _copied,
    "install": _copied,
    "wipefs": _wipe,
    "parted": _with_words("mklabel mktable rm mkpart resizepart", _DISK_CHANGES),
    "sgdisk": _with_words("-Z -z --zap --zap-all -o --clear", _DISK_CHANGES),
    "sfdisk": _with_words("--delete --wipe", _DISK_CHANGES),
    "cryptsetup": _with_words("luksFormat erase luksErase reencrypt", _DISK_CHANGES),
    "badblocks": _with_words("-w -n -wsv -nsv", _DISK_CHANGES),
    "nvme": _with_words("format sanitize", _DISK_CHANGES),
    "hdparm": _with_words("--security-erase --security-erase-enhanced --trim-sector-ranges", _DISK_CHANGES),
    "zpool": _with_words("destroy labelclear", _DISK_CHANGES),
    "zfs": _with_words("destroy", _DISK_CHANGES),
    "diskutil": _with_words("eraseDisk eraseVolume zeroDisk secureErase partitionDisk", _DISK_CHANGES),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove"), _format),
    "diskpart": _format,
    "newfs": _format,
    "mke2fs": _format,
    "format": _drive,
    "format.com": _drive,
    "del": _windows,
    "erase": _windows,
    "rmdir": _windows,
    "rd": _windows,
    "vssadmin": _with_words("delete Delete", "it removes the backups of the system"),
    "kill": _kill,
    "killall5": _end,
    "systemctl": _with_words("poweroff reboot halt kexec emergency rescue", _END),
    "loginctl": _with_words("poweroff reboot halt", _END),
    "kexec": _with_words("-e --exec", _END),
    "init": _runlevel,
    "telinit": _runlevel,
    "crontab": _crontab,
    **dict.fromkeys(_ENDERS, _end),
}


def formats(part: Part, place: Place) -> Harm:
    """mkfs in all its spellings."""
    return _format(part, place) if part.name.startswith("mkfs") else ""
