"""The live page: stored runs in a browser, while they run (`upskill view`).

It is the page of the HTML report, fed by this server. No request loads a whole run: lists read stored counts, and
trials come a page at a time.

- `server`: the routes, access control, feedback, summaries of runs, and the watcher that reports changes
- `pages`: what each page shows
- `assets`: the pages; the report's style and scripts come first
"""
