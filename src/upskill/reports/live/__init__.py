"""The live page: stored runs in a browser, while they go on (`upskill view`).

It is the page of the HTML report with another source of data: this server, on this machine alone, which reads the
store. One watcher asks the store what has changed and tells all open pages by server-sent events. Nothing that is
answered loads a run whole: lists read counts that the store keeps, trials come a page at a time.

- `server`: what is answered under which address
- `guard`: who may ask: the token, `Host` and `Origin`, and the headers of every answer
- `watcher`: what has changed, for all pages at once
- `answers`: what many pages ask for, made once between two changes
- `overview`: the list of runs and skills
- `summaries`: what the page of a run shows besides its trials, computed once and beside the event loop
- `trials`: the trials of a run, filtered, a page at a time
- `compare`: two runs side by side; `skills`: a skill over its versions and models
- `feedback`: what a person says of an answer
- `assets`: the pages; the report's style and scripts come first
"""
