"""`html`: a run as one page that opens anywhere, without a network: verdicts, pictures, cases, and every answer.

The page is made from plain data, inside the file or from the live server. Text of models, students and suites is
never set as HTML.

- `data`: a run and its trials as that data
- `page`: the one file, with trials in compressed blocks and the hashes that its Content-Security-Policy allows
- `assets`: the page itself; `source.js` defines the interface of a data source
"""
