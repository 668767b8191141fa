"""Registry of every statement by its id: statements of the papers, and statements in somebody's own file."""
