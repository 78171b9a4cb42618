"""Readers of trace formats, one file each.

Of agents: `claude_code`, `codex`, `opencode`, `cursor`, `gemini`, `copilot`, `pi`, `qwen`, `kimi`, `grok`, `droid`,
`antigravity`, `amp`, `swe_agent`, `mini_swe_agent`, `openhands`, `aider`. Of other programs: `inspect_ai`, `atif`,
`claude_ai`, `chatgpt`, `messages`, `specstory`, `terminal`, `markdown`. Shared: `cursor_store`,
`gemini_parts`, `inspect_logs` and `opencode_markdown`.
"""
