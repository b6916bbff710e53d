"""What takes the keyboard for a while: questions, lists to choose from, things to look at."""
