"""Regularization paths: over the ball, in a cone, jointly in head and prompt, and along a schedule of radii."""
