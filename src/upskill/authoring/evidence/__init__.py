"""Evidence is what traces show: quotations that a line of a skill can cite.

- `extract`: commands that worked or failed and what the person said, word for word, also as a page without a model
- `sessions`: several traces in the order of their times; what they share, what differs, and what is overruled
- `commands`: what a tool call ran, whether it worked, and when two calls ran the same command
"""
