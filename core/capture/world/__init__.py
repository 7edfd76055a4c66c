"""What is older than the frame: read under guards, written to records until the graph has run."""
