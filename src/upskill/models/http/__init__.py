"""Models reached over HTTP: one file per wire format, and what they share.

- `openai`: chat completions, OpenAI's and every compatible endpoint's; `anthropic`: messages
- `batches`: the batch APIs; kinds `openai_batches`, `anthropic_batches`
- `model`: HttpModel: sending with retries, limits and clear errors; `throttling`: AdaptiveLimiter, CircuitBreaker
- `transport`: sends one request, whatever the HTTP library
"""
