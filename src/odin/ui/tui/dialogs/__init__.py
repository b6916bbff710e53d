"""Modal dialogs: permission requests, questions, pickers and reports."""
