"""Each statement without one of its assumptions: where to look, and what fails there in the paper's words."""
