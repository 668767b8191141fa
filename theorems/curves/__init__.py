"""Curves that statements of several chapters or papers speak of: descents, flows, paths, cones and sublevel sets."""
