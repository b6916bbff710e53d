"""Playing a recorded session again through the real engine and tools, and telling whether the same things happened."""
