"""The command ``theorems``: all that reads options or prints. Its subcommands are in :mod:`theorems.command.app`."""
