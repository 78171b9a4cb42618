"""Material is what a teacher writes from: a task, examples, documents, traces, MCP tools, an older skill.

- `material`: reads every source into one Material, keeps it in the skill's folder and reads it back
- `sessions`: several sessions in the order of their times
- `documents`: PDF, HTML, notebooks and Word files as Markdown
- `mcp`: tool schemas of MCP servers
"""
