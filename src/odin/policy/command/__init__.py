"""What a command line does, told without running it."""
