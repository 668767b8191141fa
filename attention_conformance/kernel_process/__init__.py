"""A kernel in a process of its own, which only receives and returns tensors; the judging process does the rest."""
