"""A run of ``theorems verify`` as one document, Markdown or HTML; :mod:`theorems.command.report` writes it."""
