"""Evidence is what traces show: quotations that a line of a skill can cite.

- `quotations`: commands that worked or failed, and what the person said, word for word
- `commands`: what a tool call ran, whether it worked, and when two calls ran the same command
- `extract`: a page of quotations, as a skill, without a model
"""
