"""The subcommand ``theorems explore``: from its options to a page that is served, or written to a file."""

from __future__ import annotations

import threading
import webbrowser
from importlib.util import find_spec

from reference_attention.errors import InvalidInput
from reference_attention.files import write_text
from theorems.command.common import check_targets, complain
from theorems.command.subcommands import ExploreOptions
from theorems.core.exit_code import Exit
from theorems.run.tables import console


def explore_and_serve(options: ExploreOptions) -> int:
    """Serve the page until a signal comes, or write the page to a file, and return the exit code.

    Raises:
        InvalidInput: bokeh is not installed, the data cannot be used, or the file cannot be written.
    """
    if find_spec("bokeh") is None:
        raise InvalidInput(
            "explore: bokeh is not installed; install it, or this package with its extra: pip install"
            " 'max-margin-theorems[explore]'."
        )
    from theorems.explore.data_sources import FIRST, state_named

    check_targets(options.html)
    state = state_named(options.data or FIRST)
    if options.html is not None:
        from theorems.explore.export import page_html

        write_text(options.html, page_html(state))
        return Exit.UPHELD
    from theorems.explore.server import ExploreServer

    server = ExploreServer(state, options.port)
    server.start()
    console().print(f"Open {server.address}", soft_wrap=True, highlight=False)
    complain("the page is served until Ctrl-C.")
    if options.open:
        threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
    server.run()
    return Exit.UPHELD
