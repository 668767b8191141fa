"""``theorems bench``: comparison of rules that train p, such as gradient descent with and without normalization."""
