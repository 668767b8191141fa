"""Every statement by its id: those of the papers, definitions, and statements in somebody's own file."""
