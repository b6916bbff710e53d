"""Commands that tell what files there are, and how they differ."""

import os

from odin.policy.command.harmless.options import Globbed, Known, Taken, anything, held, names, nothing, shown
from odin.policy.command.harmless.place import Look, Place
from odin.policy.paths import is_folder, real

_DIGEST = Known(shown, "btz", "binary text tag zero")


def _compared(taken: Taken, place: Place) -> bool:
    """Two files, or two folders: files in those are read through links, so there must be none that lead anywhere."""
    if any(not word.isdigit() for word in taken.operands[2:]):
        return False
    for word in taken.operands[:2]:
        found = real(word, place.cwd)
        folder = found is not None and is_folder(found)
        if not (place.holds(word) and Look(follows=True).clear(word, place) if folder else place.shows(word)):
            return False
    return True


def _measured(taken: Taken, place: Place) -> bool:
    """The size of a whole file system may be asked for, wherever it begins."""
    return all(word in ("/", "/tmp") or place.holds(word) for word in taken.operands)


_BARE = ("d", "directory", "1", "a", "A", "r", "p", "Q", "color")
"""Options of ls with which it prints names only."""


def _link(word: str, place: Place, *, slash: bool = False) -> bool:
    """A pattern stands for whatever is there, be it a link that leads out. A slash behind it would follow that."""
    return isinstance(word, Globbed) and (slash or not word.endswith("/")) and place.lies(word)


def _named(taken: Taken, place: Place) -> bool:
    """Paths of which a link among them is shown as a link."""
    return all(place.holds(word) or _link(word, place) for word in taken.operands)


def _listed(taken: Taken, place: Place) -> bool:
    """With -d or -l a link is shown as a link; otherwise a folder behind it is opened.

    Some versions know -I and -w without a value: what follows is a folder to them.
    """
    if not all(place.holds(value) for value in taken.values("I", "w")):
        return False
    if taken.has("d", "directory"):
        bare = all(name in _BARE for name, _ in taken.options)
        return all(place.holds(word) or _link(word, place, slash=bare) for word in taken.operands)
    long = taken.has("l") and not taken.has("C", "x", "m", "1", "format", "zero")
    return _named(taken, place) if long else held(taken, place)


def _linked(taken: Taken, place: Place) -> bool:
    """Without an option that resolves it, only the text of a link is shown."""
    plain = not taken.has("f", "e", "m", "canonicalize", "canonicalize-existing", "canonicalize-missing")
    return all(place.holds(word) or (plain and place.lies(word)) for word in taken.operands)


def _stated(taken: Taken, place: Place) -> bool:
    return held(taken, place) if taken.has("L", "f", "dereference", "file-system") else _named(taken, place)


def _told(taken: Taken, place: Place) -> bool:
    return (
        held(taken, place)
        if taken.has("L", "dereference") or os.environ.get("POSIXLY_CORRECT")
        else _named(taken, place)
    )


FILES: dict[str, Known] = {
    "pwd": Known(nothing, "LP", "logical physical"),
    "ls": Known(
        _listed,
        "aAbBcCdfFgGhiklmnNopqQrRsStTuUvw:xXZ1I:",
        "all almost-all author escape block-size= ignore-backups color? directory classify? file-type format= "
        "full-time group-directories-first no-group human-readable si hide= hyperlink? indicator-style= inode ignore= "
        "kibibytes numeric-uid-gid literal hide-control-chars quote-name quoting-style= reverse recursive size sort= "
        "time= time-style= tabsize= width= context zero",
    ),
    "dir": Known(held, "aAlhrRtS1", "all color?"),
    "cat": Known(
        shown,
        "AbeEnstTuv",
        "number number-nonblank show-all show-ends show-tabs squeeze-blank show-nonprinting",
    ),
    "head": Known(shown, "n:c:qvz", "lines= bytes= quiet verbose silent zero-terminated", number=True),
    "tail": Known(shown, "n:c:qvz", "lines= bytes= quiet verbose silent zero-terminated", number=True),
    "wc": Known(shown, "lwcmL", "lines words bytes chars max-line-length total="),
    "stat": Known(_stated, "c:tfLx", "format= printf= terse file-system dereference cached="),
    "file": Known(
        _told, "bikhNLIErF:", "brief mime mime-type mime-encoding no-dereference dereference extension separator= raw"
    ),
    "du": Known(
        _named,
        "shackmbxd:St:0B:",
        "summarize human-readable all total max-depth= bytes apparent-size block-size= exclude= one-file-system "
        "separate-dirs si threshold= null time? time-style= inodes",
    ),
    "df": Known(
        _measured,
        "hHTiaklPt:x:mB:",
        "human-readable si print-type inodes all local portability total type= exclude-type= block-size= output?",
    ),
    "which": Known(names, "as", "all"),
    "whereis": Known(names, "bms"),
    "basename": Known(anything, "as:z", "multiple suffix= zero"),
    "dirname": Known(anything, "z", "zero"),
    "readlink": Known(
        _linked,
        "femnqsvz",
        "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
    ),
    "realpath": Known(
        held,
        "emqszLP",
        "canonicalize-existing canonicalize-missing quiet strip no-symlinks zero logical physical relative-to= "
        "relative-base=",
    ),
    "tree": Known(
        held,
        "adfiCDhpstL:P:I:qNQugFAnSrvcUJX",
        "dirsfirst noreport filelimit= gitignore prune du si inodes device sort= timefmt= matchdirs ignore-case "
        "charset= filesfirst",
        apart=True,
    ),
    "cmp": Known(_compared, "bln:si:", "print-bytes verbose silent quiet bytes= ignore-initial="),
    "comm": Known(shown, "123z", "total check-order nocheck-order output-delimiter= zero-terminated"),
    "diff": Known(
        _compared,
        "ubwBiqrNcU:C:ydsatETEpI:W:nex:",
        "unified? context? brief recursive ignore-case ignore-all-space ignore-space-change ignore-blank-lines "
        "ignore-trailing-space ignore-matching-lines= new-file color? side-by-side width= suppress-common-lines "
        "report-identical-files text show-c-function label= minimal normal left-column exclude= strip-trailing-cr "
        "no-dereference speed-large-files tabsize= expand-tabs initial-tab",
    ),
    "cksum": Known(shown, "a:z", "algorithm= untagged tag zero base64 raw"),
    "sum": Known(shown, "rs", "sysv"),
    **dict.fromkeys(("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"), _DIGEST),
    "shasum": Known(shown, "a:btp", "algorithm= binary text portable"),
    "md5": Known(shown, "qr"),
    "getfacl": Known(held, "acdeEtnp", "access default numeric omit-header skip-base tabular absolute-names"),
    "lsattr": Known(held, "aldpv"),
    "namei": Known(held, "lmovnx", "long modes owners vertical nosymlinks mountpoints"),
    "pathchk": Known(held, "pP", "portability"),
}
