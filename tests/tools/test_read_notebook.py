"""Read of Jupyter notebooks: cells, outputs, images, limits, malformed files."""

import binascii
import json
from pathlib import Path
from typing import Any

from tests import pictures
from tests.tools.toolbox import Toolbox

PICTURE = binascii.b2a_base64(pictures.png(64, 48)).decode()


def notebook(*cells: dict[str, Any], **top: Any) -> str:
    about = {"kernelspec": {"name": "python3", "language": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5, **top})


def code(source: str | list[str], *outputs: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": count, "metadata": {}}


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def display(**data: Any) -> dict[str, Any]:
    named = {name.replace("__", "/"): value for name, value in data.items()}
    return {"output_type": "display_data", "data": named, "metadata": {}}


async def test_cells_are_shown_with_source_and_outputs(box: Toolbox) -> None:
    error = {
        "output_type": "error",
        "ename": "E",
        "evalue": "v",
        "traceback": ["\x1b[0;31mZeroDivisionError\x1b[0m", "x"],
    }
    path = box.write(
        "a.ipynb",
        notebook(
            markdown("# Title"),
            code(["import x\n", "x.go()"], stream("gone\n"), count=3),
            code("1/0", error),
            code("table", display(text__html="<table>", text__plain="a b")),
            code("chart", display(text__html="<div>")),
        ),
    )
    assert (await box.ok("Read", file_path=path)).text.splitlines() == [
        "(notebook: 5 cells, python)",
        "--- cell 1: markdown ---",
        "# Title",
        "--- cell 2: code, run 3 ---",
        "import x",
        "x.go()",
        "--- output ---",
        "gone",
        "--- cell 3: code ---",
        "1/0",
        "--- error ---",
        "ZeroDivisionError",
        "x",
        "--- cell 4: code ---",
        "table",
        "--- output ---",
        "a b",
        "--- cell 5: code ---",
        "chart",
        "--- output ---",
        "(text/html, not shown)",
        "(to edit it, view its raw lines with Grep in content mode first)",
    ]


async def test_only_the_first_five_image_outputs_are_shown(box: Toolbox) -> None:
    shown = display(image__png=PICTURE, text__plain="<Figure>")
    output = await box.ok("Read", file_path=box.write("a.ipynb", notebook(*[code("plot()", shown)] * 7)))
    assert len(output.images) == 5
    assert Path(output.images[0].path).read_bytes() == pictures.png(64, 48)
    size = len(pictures.png(64, 48))
    assert f"(image 1: 64x48, png, {size} bytes)" in output.text
    assert output.text.count(f"(image output, {size} bytes, not shown)") == 2
    assert "Figure" not in output.text


async def test_broken_image_outputs_are_reported(box: Toolbox) -> None:
    cells = [
        code("a", display(image__png="!!!")),
        code("b", display(image__png=binascii.b2a_base64(b"what").decode())),
        code("c", display(image__png=binascii.b2a_base64(pictures.png()[:-9]).decode())),
    ]
    output = await box.ok("Read", file_path=box.write("a.ipynb", notebook(*cells)))
    assert output.images == ()
    assert output.text.count("(image output") == 3
    assert "not shown: it is cut off" in output.text


async def test_offset_and_limit_count_cells(box: Toolbox) -> None:
    path = box.write("a.ipynb", notebook(*[markdown(f"cell {n}") for n in range(1, 11)]))
    text = (await box.ok("Read", file_path=path, offset=4, limit=2)).text
    assert "cell 4: markdown" in text
    assert "cell 5: markdown" in text
    assert "cell 6" not in text
    assert "(showing cells 4-5 of 10 total; go on with offset=6; offset and limit count cells)" in text
    assert "has only 10 cells" in await box.refused("Read", file_path=path, offset=11)


async def test_a_long_notebook_is_shown_in_parts_with_a_note(box: Toolbox) -> None:
    cells = [code("s" * 3000, stream("o" * 9000)) for _ in range(40)]
    path = box.write("a.ipynb", notebook(*cells))
    seen, offset = 0, 1
    while True:
        text = (await box.ok("Read", file_path=path, offset=offset)).text
        assert len(text) < 50_000
        assert "[... cut: 4000 of 9000 characters are shown" in text
        seen += text.count("--- cell ")
        if "go on with offset=" not in text:
            break
        offset = int(text.split("go on with offset=")[1].split(";")[0])
    assert seen == 40


async def test_one_huge_cell_is_truncated(box: Toolbox) -> None:
    cell = code("line\n" * 50_000, *[stream("out\n" * 500)] * 300)
    text = (await box.ok("Read", file_path=box.write("a.ipynb", notebook(cell)))).text
    assert len(text) < 50_000
    assert text.count("\n") < 2000
    assert "of 250000 characters are shown" in text
    assert "of 300 left out)" in text


async def test_notebook_format_3_is_read(box: Toolbox) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "heading", "level": 1, "source": ["Old"]},
        {
            "cell_type": "code",
            "input": ["print(1)"],
            "prompt_number": 2,
            "outputs": [
                {"output_type": "stream", "stream": "stdout", "text": ["1\n"]},
                {"output_type": "pyout", "text": ["42"], "prompt_number": 2},
                {"output_type": "display_data", "png": PICTURE, "text": ["<fig>"]},
                {"output_type": "pyerr", "ename": "KeyError", "evalue": "'k'", "traceback": []},
            ],
        },
    ]
    old = json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]})
    output = await box.ok("Read", file_path=box.write("old.ipynb", old))
    for part in ("cell 1: heading ---\nOld", "code, run 2 ---\nprint(1)", "\n1\n", "\n42\n", "KeyError: 'k'"):
        assert part in output.text
    assert len(output.images) == 1


async def test_a_file_that_is_no_notebook_is_shown_as_text(box: Toolbox) -> None:
    for content in ("{ not json\n", "[1, 2]\n", '{"cells": 3}\n', "[" * 100_000 + "\n", "{}\n"):
        text = (await box.ok("Read", file_path=box.write("a.ipynb", content))).text
        assert text.startswith("     1\t")
    assert (await box.ok("Read", file_path=box.write("b.ipynb", ""))).text == "(empty file)"


async def test_malformed_notebooks_are_shown_as_far_as_possible(box: Toolbox) -> None:
    odd: list[Any] = [3, None, {"cell_type": 7, "source": {"a": 1}, "outputs": [1, {"output_type": "stream"}]}]
    text = (await box.ok("Read", file_path=box.write("a.ipynb", notebook(*odd)))).text
    assert "(notebook: 3 cells, python)" in text
    lone = notebook(markdown("half \ud83d and whole \U0001f600"))
    text = (await box.ok("Read", file_path=box.write("b.ipynb", lone))).text
    assert "half \ufffd and whole \U0001f600" in text
    text.encode()
    none = (await box.ok("Read", file_path=box.write("c.ipynb", notebook()))).text
    assert none.startswith("(a notebook without cells)")


async def test_a_notebook_is_edited_by_its_raw_lines(box: Toolbox) -> None:
    path = box.write("a.ipynb", json.dumps(json.loads(notebook(code("x = 1"))), indent=1))
    await box.ok("Read", file_path=path)
    edit = {"file_path": path, "old_string": '"x = 1"', "new_string": '"x = 2"'}
    assert "read" in (await box.refused("EditTool", **edit)).lower()
    await box.ok("Grep", pattern="x = 1", path=path, output_mode="content")
    await box.ok("EditTool", **edit)
    assert "x = 2" in (await box.ok("Read", file_path=path)).text


async def test_only_a_few_of_many_broken_images_are_decoded(box: Toolbox) -> None:
    """Decoding an image can take a second, and a notebook may contain thousands."""
    broken = binascii.b2a_base64(pictures.png(4, 4)[:-20]).decode()
    path = box.write("many.ipynb", notebook(code("x", *(display(**{"image/png": broken}) for _ in range(30)))))
    text = (await box.call("Read", file_path=path)).text
    assert text.count("(image output, not shown: ") == 10
    assert text.count("bytes, not shown)") == 20
