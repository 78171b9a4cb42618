"""`html`: a run as one page that opens anywhere, without a network: verdicts, pictures, cases, and every answer.

Everything on the page comes from plain data: `summary` of a run, and its trials. A report has them inside the file,
compressed; the live page asks a server for the same. What models, students and suites wrote is only ever set as text.

- `data`: a run and its trials as the plain data that the page is made from
- `page`: the one file, with trials in compressed blocks and the hashes that its Content-Security-Policy allows
- `assets`: the page itself; `source.js` says what a source of data has to offer
"""
