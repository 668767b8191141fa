"""A run of verify as one self-contained document: what ``theorems report`` writes."""
