"""The doors of the house, under a name that no file of a user's has: the command, the pytest plugin, and their
doorkeeper.

Python looks in the working directory before it looks among installed packages, so that a user's ``generators.py``
takes the place of ours. What is imported first therefore lies here, and looks for such a file before it imports
anything else.
"""
