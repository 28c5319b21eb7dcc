"""Tables on a terminal, figures, and pages that need nothing but a browser."""
