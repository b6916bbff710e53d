"""Looking at the conversation: moving among its cards, and at another agent's work."""

from typing import TYPE_CHECKING

from odin.ui.tui.paint.foreign import one_line

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


def look(app: "OdinApp") -> None:
    """From the composer to the last card."""
    app.transcript.focus()
    if app.transcript.cursor is None:
        app.transcript.action_last_card()


def next_agent(app: "OdinApp") -> None:
    """Show the work of the next agent; after the last one comes the main one again."""
    app.agent = app.stories.after(app.agent)
    show_agent(app)


def show_agent(app: "OdinApp") -> None:
    agent = app.agent
    title = ""
    if agent:
        key = app.keys.shown("next_agent")
        task = next((block.task for block in app.stories[""].agents if block.key == agent), "")
        title = f"{one_line(agent)} at work: {one_line(task)}  ({key}: the next one)"
    app.transcript.show(app.stories[agent], title=title)


def go_to_agent(app: "OdinApp", agent: str) -> None:
    """Show the work of this one."""
    if agent in app.stories:
        app.agent = agent
        show_agent(app)
        app.wake()


def go_to_change(app: "OdinApp", call_id: str) -> None:
    """Show the card of the call that changed a file, in the story of whoever made it."""
    for agent, story in app.stories.items():
        block = next((block for block in reversed(story.blocks) if block.key == call_id), None)
        if block is not None:
            if agent != app.agent:
                go_to_agent(app, agent)
            app.transcript.focus()
            app.transcript.point_at(block)
            return
    app.tell("What changed this file is not on the screen: a command did it, or it was rewound.")
