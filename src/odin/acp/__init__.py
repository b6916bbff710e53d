"""The Agent Client Protocol, version 1: Odin as an agent of editors (docs/editors.md).

An editor starts `odin acp` and talks to it in lines of JSON-RPC. It is a client of sessions as the other front ends
are: the state of a session is folded from its events (`updates`), and what of it has changed is sent. That is the shape
of version 2 of the protocol, in which a prompt is only acknowledged and everything else is an update; version 1 adds
that a prompt is answered when its turn is over (`session`).
"""
