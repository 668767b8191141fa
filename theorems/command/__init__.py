"""The command ``theorems``: all that reads options or prints; its subcommands are in :mod:`theorems.command.app`."""
