"""What a person is asked on a terminal."""
