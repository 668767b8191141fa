"""The rules that ``theorems bench`` compares, one per file: the update, its source, and the limit that theory names."""
