"""The live page: stored runs in a browser, while they go on (`upskill view`).

It is the page of the HTML report with another source of data: this server, on this machine alone, which reads the
store. One watcher asks the store what has changed and tells all open pages by server-sent events. Nothing that is
answered loads a run whole: lists read counts that the store keeps, trials come a page at a time.

- `server`: the addresses, who may ask, feedback, summaries of runs, and the watcher that says what has changed
- `pages`: what each page shows
- `assets`: the pages; the report's style and scripts come first
"""
