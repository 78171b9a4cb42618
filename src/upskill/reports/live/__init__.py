"""The live page: stored runs in a browser, while they go on (`upskill view`).

It is the page of the HTML report, fed by this server. No answer loads a whole run: lists read stored counts, and
trials come a page at a time.

- `server`: the addresses, who may ask, feedback, summaries of runs, and the watcher that says what has changed
- `pages`: what each page shows
- `assets`: the pages; the report's style and scripts come first
"""
