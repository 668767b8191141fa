"""The theorems of softmax attention as executable specifications."""
