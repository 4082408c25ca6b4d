"""Rewrite a program, keep the unsafe fixes that its runs justify, and list the remaining findings."""
