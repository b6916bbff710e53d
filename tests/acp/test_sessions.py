from pathlib import Path
from odin.testing import ScriptedServer, call, reply, say
from .editor import open_editor

async def test_a_prompt(workspace: Path):
    with ScriptedServer([say("Hello there.")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await editor.open(workspace)
            assert await editor.prompt(session, "hi") == "end_turn"
            for m in editor.messages: print(m)
            assert editor.text() == "Hello there."

async def test_an_edit(workspace: Path):
    (workspace/"a.txt").write_text("one\ntwo\n")
    with ScriptedServer([call("Read", {"file_path": str(workspace/"a.txt")}), call("EditTool", {"file_path": str(workspace/"a.txt"), "old_string":"two","new_string":"2"}), call("ExecuteCommand",{"command":"echo hi > b.txt; cat b.txt"}), say("done")]) as model:
        async with open_editor(model, capabilities={}, answers=["allow_once","allow_once"]) as editor:
            session = await editor.open(workspace)
            assert await editor.prompt(session, "hi") == "end_turn"
            for m in editor.messages:
                if 'available_commands' not in str(m): print(m)
            assert (workspace/"a.txt").read_text()=="one\n2\n"
