"""Commands that print, cut and reorder text."""

import os
import re

from odin.policy.command.harmless.options import Known, Taken, anything, nothing, one_shown, shown
from odin.policy.command.harmless.place import Place
from odin.policy.paths import joined

_MAX_SLEEP = 60


def _inert(taken: Taken, place: Place) -> bool:
    """A format and its values: none may be an option, and none holds what arithmetic would run from inside quotes."""
    return bool(taken.operands) and not any(char in word for word in taken.operands for char in "$`")


def _short_wait(taken: Taken, place: Place) -> bool:
    waits = [re.fullmatch(r"(\d{1,3}(?:\.\d+)?)s?", word) for word in taken.operands]
    return len(waits) == 1 and waits[0] is not None and float(waits[0][1]) <= _MAX_SLEEP


def _no_lists(taken: Taken, place: Place) -> bool:
    """`@file` stands for the words in that file."""
    return not any(word.startswith("@") for word in taken.operands) and shown(taken, place)


def _shuffled(taken: Taken, place: Place) -> bool:
    """With -r and no number it never ends."""
    endless = taken.has("r", "repeat") and not taken.has("n", "head-count")
    return not endless and (taken.has("e", "echo") or one_shown(taken, place))


def _looked_up(taken: Taken, place: Place) -> bool:
    """Without a file, look searches a dictionary of the system."""
    return (
        len(taken.operands) in (1, 2)
        and not taken.led_by_glob
        and all(place.shows(word) for word in taken.operands[1:])
    )


def _packed(taken: Taken, place: Place) -> bool:
    """Files that are there: for one that is not, another is opened that has a suffix more."""
    return all(place.shows(word) and os.path.isfile(joined(place.cwd, word)) for word in taken.operands)  # noqa: PTH113


def _unpacked(taken: Taken, place: Place) -> bool:
    """Without one of these options, the file is replaced by another."""
    return taken.has("c", "l", "t", "stdout", "to-stdout", "list", "test") and _packed(taken, place)


def _contents(taken: Taken, place: Place) -> bool:
    """What is in an archive, which is named first; what follows are names inside of it."""
    return _packed(Taken([], taken.operands[:1]), place) and bool(taken.operands)


def _listed(taken: Taken, place: Place) -> bool:
    return taken.has("l", "v", "t", "Z") and _contents(taken, place)


def _numbers(taken: Taken, place: Place) -> bool:
    return all(re.fullmatch(r"[+-]?\d{1,9}(\.\d{1,9})?", word) for word in taken.operands)


TEXT: dict[str, Known] = {
    "sort": Known(
        shown,
        "bdfghinMRrVuk:t:csmzCS:",
        "reverse unique numeric-sort general-numeric-sort human-numeric-sort version-sort month-sort random-sort sort= "
        "key= field-separator= check? ignore-case ignore-leading-blanks dictionary-order ignore-nonprinting merge "
        "stable zero-terminated debug parallel= buffer-size=",
    ),
    "uniq": Known(
        one_shown,
        "cdDuif:s:w:z",
        "count repeated all-repeated? unique ignore-case skip-fields= skip-chars= check-chars= group? zero-terminated",
        first=True,
    ),
    "cut": Known(
        shown,
        "d:f:c:b:snz",
        "delimiter= fields= characters= bytes= only-delimited complement output-delimiter= zero-terminated",
    ),
    "tr": Known(anything, "cCdst", "complement delete squeeze-repeats truncate-set1"),
    "nl": Known(
        shown,
        "b:n:w:s:v:i:h:f:d:l:p",
        "body-numbering= number-format= number-width= number-separator= starting-line-number= line-increment=",
    ),
    "tac": Known(shown, "brs:", "before regex separator="),
    "rev": Known(shown),
    "fold": Known(shown, "bsw:", "bytes spaces width=", number=True),
    "fmt": Known(
        shown,
        "cstuw:g:",
        "crown-margin split-only tagged-paragraph uniform-spacing width= goal= prefix=",
        number=True,
    ),
    "pr": Known(shown, "adfFh:e?i?l:mn?N:o:rs?tTvW:w:", "columns= header= length= omit-header width=", number=True),
    "paste": Known(shown, "d:sz", "delimiters= serial zero-terminated"),
    "join": Known(
        shown,
        "a:e:ij:1:2:o:t:v:z",
        "ignore-case header check-order nocheck-order zero-terminated",
    ),
    "expand": Known(shown, "it:", "initial tabs="),
    "unexpand": Known(shown, "at:", "all first-only tabs="),
    "column": Known(
        shown,
        "ts:c:nexo:N:R:H:J",
        "table separator= columns= output-separator= table-columns= table-right= fillrows json table-name=",
    ),
    "od": Known(shown, "A:j:N:t:vw?abcdfilosxS?", "address-radix= skip-bytes= read-bytes= format= strings? width?"),
    "hexdump": Known(shown, "Cbcdoxvn:s:e:", "canonical length= skip= no-squeezing"),
    "hd": Known(shown, "Cvn:s:"),
    "xxd": Known(one_shown, "abc:eg:il:o:ps:uEd", first=True, apart=True),
    "strings": Known(
        _no_lists,
        "an:t:e:fow",
        "all bytes= radix= encoding= print-file-name include-all-whitespace",
        number=True,
        values="[^@].*",
    ),
    "base64": Known(one_shown, "diw:", "decode ignore-garbage wrap="),
    "base32": Known(one_shown, "diw:", "decode ignore-garbage wrap="),
    "iconv": Known(shown, "f:t:cls", "from-code= to-code= list silent", values=r"[\w.:+-]*(//[\w,-]*)*"),
    "tsort": Known(one_shown),
    "shuf": Known(_shuffled, "en:i:rz", "echo head-count= input-range= repeat zero-terminated"),
    "numfmt": Known(
        anything,
        "d:z",
        "from= to= from-unit= to-unit= suffix= padding= round= delimiter= field= format= grouping header? invalid=",
    ),
    "seq": Known(_numbers, "f:s:w", "format= separator= equal-width", number=True),
    "factor": Known(anything),
    "bc": Known(shown, "lqsw", "mathlib quiet standard warn"),
    "col": Known(nothing, "bfhpx"),
    "look": Known(_looked_up, "dft:"),
    "uuidgen": Known(nothing, "r", "random"),
    "gzip": Known(_unpacked, "cdlvtqN", "stdout to-stdout decompress list verbose test quiet", first=True),
    "gunzip": Known(_unpacked, "clvtqN", "stdout to-stdout list verbose test quiet", first=True),
    **dict.fromkeys(("zcat", "xzcat", "bzcat", "zstdcat"), Known(_packed)),
    "xz": Known(_unpacked, "cdlvtq", "stdout to-stdout decompress list verbose test quiet", first=True),
    "unzip": Known(_listed, "lvqZ1t", first=True),
    "zipinfo": Known(_contents, "12slmvhtTzC", first=True),
    "nm": Known(_no_lists, "agnuCDASoprP", "demangle? dynamic defined-only undefined-only numeric-sort print-size"),
    "size": Known(_no_lists, "ABdt", "format= totals"),
    "readelf": Known(
        _no_lists, "ahlSsrdnVgeIW", "all file-header program-headers section-headers symbols dynamic wide"
    ),
    "sleep": Known(_short_wait),
    "true": Known(anything),
    "false": Known(anything),
    ":": Known(anything),
    "printf": Known(_inert),
    "umask": Known(nothing, "S"),
}
