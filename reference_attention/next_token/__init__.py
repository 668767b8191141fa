"""Next-token prediction: its loss, which parts of the parameters converge, training, and the limits of training."""
