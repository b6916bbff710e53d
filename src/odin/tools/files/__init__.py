"""What the tools for files share: paths, text, exact replacement, and bytes put in place whole."""
