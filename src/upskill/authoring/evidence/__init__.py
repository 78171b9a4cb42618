"""Evidence is what traces show: quotations that a line of a skill can cite.

- `extract`: commands that worked or failed and what the person said, word for word, also as a page without a model
- `commands`: what a tool call ran, whether it worked, and when two calls ran the same command
"""
