"""Material is what a teacher writes from: a task, examples, documents, traces, MCP tools, an older skill.

- `material`: reads every source into one Material
- `sessions`: several sessions in the order of their times
- `stored`: what a skill was made from, kept in its folder and read back
- `documents`: PDF, HTML, notebooks and Word files as Markdown
- `mcp`: tool schemas of MCP servers
"""
