"""Questions with texts: which of them is right, or where in them the answer stands."""
