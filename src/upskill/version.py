"""The version of upskill, in a module of its own so that every other module can import it."""

__version__ = "0.2.0"
