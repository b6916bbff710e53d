"""What commands mean and what is said of them, in words: the same for every front end."""
