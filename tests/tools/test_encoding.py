"""Files that are not UTF-8: edited in their encoding if it is certain, preserved byte for byte if not."""

from pathlib import Path

import pytest

from odin.tools.encoding import recognize_encoding
from odin.tools.files import decode
from tests.tools.toolbox import Toolbox

CHINESE = "// 读取配置文件，如果文件不存在则返回默认值\nint count = 1;\n"
JAPANESE = "// 設定ファイルを読み込みます\nint count = 1;\n"

OTHERS = {
    "euc_kr": "// 설정 파일을 읽습니다. 사용자 목록을 초기화하고 결과를 반환한다\n",
    "johab": "설정 파일을 읽습니다\n",
    "big5": "讀取設定檔，如果檔案不存在則傳回預設值。初始化使用者清單\n",
    "euc_jp": "// 設定ファイルを読み込みます\n",
    "koi8-r": "Привет, мир! Это файл, который читает программа при запуске\n",
    "cp1251": "Привет, мир! Это файл, который читает программа при запуске\n",
    "cp866": "Вам нужно прочитать этот файл Вот так\n",
    "latin-1": "Créé à l'été: où est la forêt? Größe für Äpfel, naïve façade\n",
    "iso8859-7": "Αυτό είναι ένα αρχείο ρυθμίσεων\n",
    "tis-620": "นี่คือไฟล์การตั้งค่า\n",
}


async def test_a_chinese_file_is_shown_and_edited_in_its_encoding(box: Toolbox) -> None:
    path = box.write("a.c", CHINESE.encode("gb18030"))
    assert "如果文件不存在" in (await box.ok("Read", file_path=path)).text
    await box.ok("EditTool", file_path=path, old_string="默认值", new_string="错误信息 €𠀀")
    assert Path(path).read_bytes() == CHINESE.replace("默认值", "错误信息 €𠀀").encode("gb18030")


async def test_a_japanese_file_is_edited_in_its_encoding(box: Toolbox) -> None:
    path = box.write("a.c", JAPANESE.encode("cp932"))
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string="読み込みます", new_string="表示する")
    assert Path(path).read_bytes() == JAPANESE.replace("読み込みます", "表示する").encode("cp932")
    text = await box.refused("EditTool", file_path=path, old_string="count", new_string="größe")
    assert "do not exist in cp932" in text


async def test_writing_over_a_chinese_file_keeps_its_encoding(box: Toolbox) -> None:
    path = box.write("a.c", CHINESE.replace("\n", "\r\n").encode("gb18030"))
    await box.ok("WriteFile", file_path=path, content="全部重写\n")
    assert Path(path).read_bytes() == "全部重写\r\n".encode("gb18030")


async def test_the_encoding_is_kept_when_an_edit_removes_the_recognizable_text(box: Toolbox) -> None:
    path = box.write("a.c", CHINESE.encode("gb18030"))
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string="读取配置文件，如果文件不存在则返回默认值", new_string="鼹鼠")
    assert recognize_encoding(Path(path).read_bytes()) is None
    await box.ok("EditTool", file_path=path, old_string="鼹鼠", new_string="鼹鼠和獾")
    assert Path(path).read_bytes() == "// 鼹鼠和獾\nint count = 1;\n".encode("gb18030")


def test_recognized_text_encodes_to_the_same_bytes() -> None:
    for text, codec in ((CHINESE, "gb18030"), (CHINESE, "gbk"), ("你好世界\n", "gb2312"), (JAPANESE, "cp932")):
        data = text.encode(codec)
        found = decode(data)
        assert found is not None
        assert (found.text, found.valid) == (text, True)
        assert found.encode(text) == data


@pytest.mark.parametrize("codec", OTHERS)
def test_other_encodings_are_never_taken_for_chinese_or_japanese(codec: str) -> None:
    data = OTHERS[codec].encode(codec)
    for cut in range(1, len(data) + 1):
        assert recognize_encoding(data[:cut]) is None, (codec, data[:cut])
    assert recognize_encoding(data * 50) is None


@pytest.mark.parametrize("codec", OTHERS)
async def test_other_encodings_keep_every_byte_and_accept_only_ascii(box: Toolbox, codec: str) -> None:
    data = OTHERS[codec].encode(codec) + b"count = 1\n"
    path = box.write("a.txt", data)
    await box.ok("Read", file_path=path)
    assert "only ASCII" in await box.refused("EditTool", file_path=path, old_string="count", new_string="größe")
    await box.ok("EditTool", file_path=path, old_string="count", new_string="total")
    assert Path(path).read_bytes() == data.replace(b"count", b"total")


async def test_a_letter_that_may_be_half_of_a_character_is_not_replaced(box: Toolbox) -> None:
    data = "表 = 1\n".encode("cp932")
    assert data.startswith(b"\x95\\")
    path = box.write("a.txt", data)
    await box.ok("Read", file_path=path)
    text = await box.refused("EditTool", file_path=path, old_string="\\", new_string="/")
    assert "second half of a character" in text
    assert Path(path).read_bytes() == data


@pytest.mark.parametrize("codec", ["utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"])
async def test_utf16_and_utf32_are_kept(box: Toolbox, codec: str) -> None:
    path = box.write("a.txt", "\ufeffgrün 😀\r\nend\r\n".encode(codec))
    await box.ok("Read", file_path=path)
    await box.ok("EditTool", file_path=path, old_string="end", new_string="ö\n漢")
    assert Path(path).read_bytes() == "\ufeffgrün 😀\r\nö\r\n漢\r\n".encode(codec)


async def test_binary_data_that_begins_like_utf16_is_not_text(box: Toolbox) -> None:
    path = box.write("a.bin", b"\xff\xfe\x00\x00\x01\x02\x03")
    assert "binary" in await box.refused("Read", file_path=path)
    odd = box.write("b.bin", b"\xff\xfea\x00\x00\x00b\x00")
    assert "binary" in await box.refused("Read", file_path=odd)
