"""What a repository is, told from its files alone: nothing is run and nothing is guessed."""
