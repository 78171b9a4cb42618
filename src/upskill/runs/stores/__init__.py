"""A Store keeps runs, results, replies, batches and candidates."""
