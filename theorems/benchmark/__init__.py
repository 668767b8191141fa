"""``theorems bench``: comparison of rules that train p, such as gradient descent and normalized gradient descent."""
