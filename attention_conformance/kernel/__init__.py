"""A user's attention kernel in place of the reference's softmax: for the command, for pytest, for Python."""
