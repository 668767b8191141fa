"""The reference implementation: softmax attention, its risk, its hard-margin SVM, and its training.

| room | what |
|---|---|
| this package | problems, losses, risk and gradient without cancellation, directions of prompts, heads, files |
| `svm` | ATT-SVM and its relatives, exact, with certificates |
| `training` | gradient descent, normalized gradient descent, gradient flow, joint descent |
| `paths` | regularization paths: over a ball, in a cone, jointly in head and prompt, along a schedule of radii |
| `next_token` | next-token prediction: loss, SVM, training, limits |
"""
