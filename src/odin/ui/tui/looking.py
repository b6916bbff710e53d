"""Looking at the conversation: moving among its cards, and at another agent's work."""

from typing import TYPE_CHECKING

from odin.ui.tui.paint.foreign import sanitize_line

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


def focus_cards(app: "OdinApp") -> None:
    """From the composer to the last card."""
    app.transcript.focus()
    if app.transcript.cursor is None:
        app.transcript.action_last_card()


def show_next_agent(app: "OdinApp") -> None:
    """Show the work of the next agent; after the last one comes the main one again."""
    app.agent = app.transcripts.find_next(app.agent)
    show_agent(app)


def show_agent(app: "OdinApp") -> None:
    agent = app.agent
    title = ""
    if agent:
        key = app.keys.label_of("next_agent")
        task = next((block.task for block in app.transcripts[""].agents if block.key == agent), "")
        title = f"{sanitize_line(agent)} at work: {sanitize_line(task)}  ({key}: the next one)"
    app.transcript.show(app.transcripts[agent], title=title)


def go_to_agent(app: "OdinApp", agent: str) -> None:
    """Show the work of this one."""
    if agent in app.transcripts:
        app.agent = agent
        show_agent(app)
        app.request_frame()


def go_to_change(app: "OdinApp", call_id: str) -> None:
    """Show the card of the call that changed a file, in the story of whoever made it."""
    for agent, story in app.transcripts.items():
        block = next((block for block in reversed(story.blocks) if block.key == call_id), None)
        if block is not None:
            if agent != app.agent:
                go_to_agent(app, agent)
            app.transcript.focus()
            app.transcript.point_at(block)
            return
    app.show_toast("What changed this file is not on the screen: a command did it, or it was rewound.")
