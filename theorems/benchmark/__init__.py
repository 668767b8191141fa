"""``theorems bench``: rules to train p, such as gradient descent and normalized gradient descent, compared."""
