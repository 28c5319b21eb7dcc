"""What stands on runs and is shown in a browser: the page that looks inside, in a file or live."""
