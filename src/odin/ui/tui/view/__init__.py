"""The parts of the conversation on the screen: how high blocks are, what is searched, what is selected."""
