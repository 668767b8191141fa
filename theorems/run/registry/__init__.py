"""Registry of every statement by its id: the statements of the papers, and the statements in users' own files."""
