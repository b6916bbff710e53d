"""Recognizes GB18030 and Shift-JIS text without a byte order mark, only when it is certain.

A wrong guess would mix encodings in a file, so three conditions must hold: every byte decodes, encoding again gives the
same bytes, and common characters of the language are far more frequent than by chance. Other encodings decoded by
mistake give rare characters, and one or two words prove nothing; such files stay undecoded and accept only ASCII.
"""

from math import log

from msgspec import Struct

_SAMPLE_BYTES = 65_536
_SAMPLE_CHARS = 400

_CERTAIN = 7.0
"""Evidence, in nats, at which chance is ruled out. Four different characters, all typical, reach it."""

_KANA = frozenset(map(chr, (*range(0x3041, 0x3094), *range(0x30A1, 0x30F7), 0x30FC)))

_COMMON_HAN = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多"
    "经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性"
    "知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次"
    "度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建"
    "务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路"
    "记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运笔"
    "测试请输密码错误录配置参函返值读写存删除修改添创查询显示户称版默译调型符串列组循环判断异线网络器客端块注释例缓址否功失败初始"
    "状态更志启停止连送消息换检验限登册首页按钮窗菜单选项印标容图片链索引键"
)

_DOUBLE_BYTE = ("cp932", "gbk", "big5")
"""Encodings in which the second byte of a character can look like ASCII."""


class _EncodingCandidate(Struct, frozen=True):
    """At least `share` of the characters of such text are `typical`; in other text about `chance` of them are."""

    codec: str
    typical: frozenset[str]
    share: float
    chance: float


_CANDIDATES = (_EncodingCandidate("gb18030", _COMMON_HAN, 0.45, 0.15), _EncodingCandidate("cp932", _KANA, 0.25, 0.05))


def recognize_encoding(data: bytes) -> tuple[str, str] | None:
    """Return the text and its codec, or None if it is not certain."""
    sample = data if len(data) <= _SAMPLE_BYTES else data[: data.rfind(b"\n", 0, _SAMPLE_BYTES) + 1]
    codecs = [candidate.codec for candidate in _CANDIDATES if _is_written_in(sample, candidate)]
    if len(codecs) != 1:
        return None
    try:
        text = data.decode(codecs[0])
    except UnicodeDecodeError:
        return None
    return (text, codecs[0]) if text.encode(codecs[0]) == data else None


def _is_written_in(sample: bytes, candidate: _EncodingCandidate) -> bool:
    try:
        text = sample.decode(candidate.codec)
    except UnicodeDecodeError:
        return False
    letters = [char for char in text if char > "\x7f" and not _is_punctuation(char)][:_SAMPLE_CHARS]
    distinct = set(letters)
    if not distinct or sum(char in candidate.typical for char in letters) < candidate.share * len(letters):
        return False
    return (
        len(distinct) * _compute_surprise(len(distinct & candidate.typical) / len(distinct), candidate.chance)
        >= _CERTAIN
    )


def _is_punctuation(char: str) -> bool:
    return "\u2010" <= char <= "\u2030" or "\u3000" <= char <= "\u303f" or "\uff00" <= char <= "\uff60"


def _compute_surprise(share: float, chance: float) -> float:
    """Return the relative entropy of this share of hits against hits by chance, per character."""
    if share <= chance:
        return 0.0
    miss = (1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * log(share / chance) + miss


def is_inside_character(data: bytes, position: int) -> bool:
    """True if this position may lie inside a two-byte character, in a file of unknown encoding."""
    if not position or data[position - 1] < 0x80 or not 0x40 <= data[position] < 0x7F:
        return False
    start = data.rfind(b"\n", 0, position) + 1
    return any(_can_decode(data, codec) and not _can_decode(data[start:position], codec) for codec in _DOUBLE_BYTE)


def _can_decode(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
