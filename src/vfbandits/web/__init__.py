"""The application's side of the active participant: HTTP, metrics, the page to look at."""
