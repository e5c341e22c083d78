"""THE SERVER: the HTTP API and the console of `saga serve`. Needs the extra ``server``; nothing is imported here."""
