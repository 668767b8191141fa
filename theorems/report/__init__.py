"""Report of a run of ``theorems verify`` as one document, Markdown or HTML, for :mod:`theorems.command.report`."""
