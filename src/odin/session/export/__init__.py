"""A session as a file for people or programs. Everything is read from the log and written piece by piece."""
