"""What people allow, ask about and deny: how rules are written, kept, matched and suggested."""
