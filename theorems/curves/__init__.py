"""Curves and sets that statements of several chapters or papers share: descents, flows, paths, cones, sublevel sets."""
