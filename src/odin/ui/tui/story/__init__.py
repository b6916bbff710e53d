"""What happened, as the things a person sees below each other."""
