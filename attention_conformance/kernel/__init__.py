"""A user's attention kernel, tested in place of the reference's softmax, from the command, pytest or Python."""
