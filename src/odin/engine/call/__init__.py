"""One tool call, from the wish of the model to its result."""
