"""What stands around the conversation: what Odin is doing, what it costs, what is left to do."""
