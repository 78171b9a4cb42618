"""Evidence is what traces show: quotations that a line of a skill can cite.

- `quotations`: commands that worked or failed and what the person said, word for word
- `sessions`: several traces in the order of their times; what they share, what differs, and what is overruled
- `commands`: what a tool call ran, whether it worked, and when two calls ran the same command
"""
