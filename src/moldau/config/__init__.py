"""Options: declared once, and from the declaration parsed, checked, described and documented."""
