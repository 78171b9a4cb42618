"""Models reached over HTTP: one file per wire format, and what they share."""
