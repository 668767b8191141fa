"""Every statement by its id: those of the papers, and statements in somebody's own file."""
