"""Models reached over HTTP: one file per wire format, and what they share.

- `openai`: chat completions, OpenAI's and every compatible endpoint's; `anthropic`: messages
- `batches`: their batch APIs
- `model`: HttpModel: sending with retries, limits and clear errors
- `transport`: sends one request over a shared pool of connections
"""
