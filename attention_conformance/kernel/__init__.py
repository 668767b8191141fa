"""A user's attention kernel under test in place of the reference's softmax: from the command, pytest or Python."""
