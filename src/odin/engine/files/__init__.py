"""Files before and after calls: saved first, and put back when somebody wants it."""
