"""The journal in a PostgreSQL database."""
