"""What the session did to files, and their earlier bytes."""
