"""`devicefix server`, a language server: `app` speaks the protocol, the rest knows files and findings."""
