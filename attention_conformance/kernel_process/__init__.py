"""A kernel in its own process, which receives and returns tensors; the judging process does everything else."""
