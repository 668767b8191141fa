"""Curves that statements speak of, descents, flows and paths: objects with their points and premises, in any room."""
