"""The command ``theorems``: all that talks to a terminal. :mod:`theorems.command.app` has the subcommands."""
