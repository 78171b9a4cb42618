"""Material is what a teacher writes from: a task, examples, documents, traces, MCP tools, an older skill.

- `material`: reads every source into one Material
- `documents`: PDF, HTML, notebooks and Word files as Markdown
- `mcp`: tool schemas of MCP servers
"""
