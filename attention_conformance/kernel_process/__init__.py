"""A kernel in a process of its own: it is given tensors and returns tensors; everything else happens in the judge's."""
