"""``theorems``: what talks to a terminal. :mod:`theorems.command.app` has the subcommands."""
